"""The table of what is fuzzed."""

from fuzzing import folders, keys, options, recordings, texts

READ = (texts.TARGET, recordings.TARGET, folders.TARGET)
TARGETS = {target.name: target for target in (*options.TARGETS, *READ, *keys.TARGETS)}
