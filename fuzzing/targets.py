"""Lists the targets that are fuzzed."""

from fuzzing import folders, keys, options, recordings, texts

READ = (texts.TARGET, recordings.TARGET, folders.TARGET)
TARGETS = {target.name: target for target in (*options.TARGETS, *READ, *keys.TARGETS)}
