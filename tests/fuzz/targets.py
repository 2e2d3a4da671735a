"""The table of what is fuzzed."""

from tests.fuzz import keys, options, texts

TARGETS = {target.name: target for target in (options.TARGET, texts.TARGET, *keys.TARGETS)}
