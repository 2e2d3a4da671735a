"""The table of what is fuzzed."""

from tests.fuzz import keys, options, texts

TARGETS = {target.name: target for target in (*options.TARGETS, texts.TARGET, *keys.TARGETS)}
