"""Lists the targets that are fuzzed."""

from fuzzing import corpora, folders, keys, options, recordings, side_files, surveys, texts

FILES = (recordings.TARGET, surveys.TARGET, *side_files.TARGETS, corpora.TARGET, folders.TARGET)
TARGETS = {target.name: target for target in (*options.TARGETS, texts.TARGET, *FILES, *keys.TARGETS)}
