"""Reads sounds with the speech models of Hugging Face transformers, from a folder or the hub's cache."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.media.text import Text
from attnviz.models.huggingface.loading import (
    load_model,
    load_part,
    load_tokenizer,
    refusals,
)
from attnviz.models.huggingface.reader import MediaReader
from attnviz.models.reading.example import Example, FoundToken, Prepared
from attnviz.models.reading.media_tokens import frame_tokens
from attnviz.text.tokens import Tokens, refuse_large

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from attnviz.base.arrays import FloatArray
    from attnviz.maps.recording import Recording
    from attnviz.text.selection import AttentionPart, Selection

INPUTS = ("input_features", "input_values")  # names of a speech model's input
MOST_START_IDS = 8  # that tell the decoder to begin, the language, the task
MIN_SAMPLES = 16  # of a sound; a frame has hundreds
DECODER_POSITIONS = 448  # of a decoder whose configuration names no number


@dataclass(frozen=True)
class SpeechModel:
    """A loaded speech model."""

    model: "PreTrainedModel"  # encoder and decoder, or an encoder alone
    extractor: Any  # computes the model's input from samples
    tokenizer: "PreTrainedTokenizerBase | None"  # the tokenizer of the decoder; ``None`` for an encoder alone


@final
class SoundReader(MediaReader):
    """The reader of a speech model: Whisper, Speech2Text, wav2vec 2, HuBERT and similar models.

    The model's decoder reads the text of the example; without a text, it generates one from the sound.
    """

    reads, noun, medium = ("sound", "text"), "sound", ("sound", "speech.wav")

    @cached_property
    def loaded(self) -> SpeechModel:
        """The model with its extractor and tokenizer, loaded once."""
        with self.running(), refusals(self.settings.model):
            model = load_model(self.folder, self.settings, "sounds")
            tokenizer = load_tokenizer(self.folder) if model.config.is_encoder_decoder else None
            return SpeechModel(model, load_part("AutoFeatureExtractor", self.folder), tokenizer)

    @cached_property
    def module(self) -> "nn.Module":
        """The speech model."""
        model = self.loaded.model
        if model.main_input_name not in INPUTS:
            raise AttnvizError(f"{self.settings.model} reads {model.main_input_name}, not sounds; leave the sound out")
        return model

    @property
    def rate(self) -> int:
        """The samples per second that the model reads."""
        return int(self.loaded.extractor.sampling_rate)

    def read(self, example: Example) -> Prepared:
        """Prepares a sound: the features that the extractor computes, and the tokens of its frames and of the decoder.

        If the model has a decoder, the frames are the context of its tokens; else they are tokens and context.
        """
        from attnviz.media.sound import open_sound, resampled, sound_of
        from attnviz.models.huggingface.tokens import with_generated
        from attnviz.models.places.sound_places import UnevenFramesError, measured_spans, spectrogram_tokens

        self.refuse_parts(example)
        assert example.sound is not None
        samples, rate = open_sound(example.sound)
        sound = sound_of(samples, rate, example.sound.name)
        with self.reading("cannot load"):
            longest = getattr(self.loaded.extractor, "n_samples", None)
            if longest is not None and sound.seconds > longest / self.rate:
                raise AttnvizError(
                    f"the sound lasts {sound.seconds:.1f} s, and {self.name} reads {longest / self.rate:.1f} s at "
                    "once; cut it into parts"
                )
            model_samples = resampled(samples, rate, self.rate)
            if len(model_samples) < MIN_SAMPLES:
                raise AttnvizError(
                    f"{example.sound.name!r} has {len(model_samples)} samples at the {self.rate} Hz that "
                    f"{self.name} reads; give at least {MIN_SAMPLES}"
                )
            features = self._features(model_samples)
            speech_model = self.loaded.model
            encoder: Any = speech_model.get_encoder() if speech_model.config.is_encoder_decoder else speech_model
            try:
                spans = measured_spans(encoder, self._features, len(model_samples), self._input_name)
                frames = frame_tokens(sound, np.rint(spans * (sound.rate / self.rate)).astype(np.int64))
            except UnevenFramesError:  # the encoder may cut a spectrogram into patches
                frames = spectrogram_tokens(
                    encoder, self._features, model_samples, self.rate, sound.title, self._input_name
                )
            if not self.loaded.model.config.is_encoder_decoder:
                if example.text or self.settings.attention is not None:
                    part = "a text" if example.text else option("attention", self.settings.attention)
                    raise AttnvizError(f"{part} needs a decoder, which {self.name} does not have; leave it out")
                return Prepared({self._input_name: features}, frames, context=frames, title=sound.title)
            attention: AttentionPart = self.settings.attention or "cross"  # type: ignore[assignment]
            tokenizer = self.loaded.tokenizer
            assert tokenizer is not None
            # The decoder's start tokens, then the text with an end token, or what the model writes.
            start_ids, ids = self._decoder_ids(features, example.text)
            # Leading special ids name the language or the task, and belong to the start; none if all are special.
            special_ids = {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
            special_ids |= set(tokenizer.all_special_ids)
            leading = next((index for index, token_id in enumerate(ids) if token_id not in special_ids), 0)
            start_ids, ids = [*start_ids, *ids[:leading]], ids[leading:]
            if example.text:
                end_ids = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
                ids = [*text_ids(tokenizer, example.text), *end_ids]
            has_end = ids[-1] == tokenizer.eos_token_id
            count = len(ids) - 1 if has_end else len(ids)
            start_tokens = replace(_special_tokens(tokenizer, "", start_ids), media=(Text(),))
            text_tokens = with_generated(tokenizer, start_tokens, ids[:count])
            tokens = text_tokens.joined(_special_tokens(tokenizer, text_tokens.text, ids[count:]))
        return Prepared(
            {self._input_name: features, "decoder_input_ids": self.tensor(tokens.ids[None]), "use_cache": False},
            tokens,
            frames,
            attention,
            title=sound.title,
        )

    def find_token(self, label: str, tokens: Tokens) -> FoundToken:
        """Returns a token of the decoder's vocabulary, as `single_token` finds it."""
        from attnviz.models.huggingface.tokens import single_token

        return single_token(self.loaded.tokenizer, label)

    def label_of(self, token_id: int, tokens: Tokens) -> str:
        """Returns the label of a token of the decoder's vocabulary."""
        from attnviz.models.huggingface.tokens import vocabulary_label

        return vocabulary_label(self.loaded.tokenizer, token_id)

    def record(self, example: Example, selection: "Selection", values: bool = False) -> "Recording":
        """Records one sound; groups the frames of each spoken word if the model's settings list alignment heads.

        These heads are also added to the recording's settings, as ``alignment_heads``.
        """
        from attnviz.metrics.alignment import with_spoken_words

        recording = super().record(example, selection, values)
        generation_settings = getattr(self.loaded.model, "generation_config", None)
        named_heads = getattr(generation_settings, "alignment_heads", None) or []
        heads = [[int(layer), int(head)] for layer, head in named_heads]
        if not heads:
            return recording
        return with_spoken_words(replace(recording, settings=recording.settings | {"alignment_heads": heads}))

    @property
    def _input_name(self) -> str:
        """The name of the keyword argument for the features of a sound."""
        return self.loaded.model.main_input_name

    def _features(self, samples: "FloatArray") -> "torch.Tensor":
        """Returns the model's input, ``(1, ...)``, for samples at the model's rate, on the device of its inputs."""
        extractor_output = self.loaded.extractor(samples, sampling_rate=self.rate, return_tensors="pt")
        features: torch.Tensor = extractor_output[self._input_name]
        return features.to(device=self.input_device, dtype=next(self.module.parameters()).dtype)

    def _decoder_ids(self, features: "torch.Tensor", text: str) -> tuple[list[int], list[int]]:
        """Returns the ids that the decoder begins with, and the ids that it generates."""
        import torch

        # The ids are read from the decoder's inputs, since models differ in what their output leaves out.
        calls: list[list[int]] = []

        def keep_ids(_: Any, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
            """Appends the ids of a call of the decoder to ``calls``; torch calls this hook before the decoder."""
            ids: Any = arguments.get("input_ids", args[0] if args else None)
            calls.append(ids[0].tolist())

        model: Any = self.loaded.model
        positions = int(getattr(model.config, "max_target_positions", None) or DECODER_POSITIONS)
        max_new_ids = MOST_START_IDS if text else max(1, positions - MOST_START_IDS)
        handle = model.get_decoder().register_forward_pre_hook(keep_ids, with_kwargs=True)
        try:
            with torch.inference_mode():
                output = model.generate(
                    **{self._input_name: features}, do_sample=False, num_beams=1, max_new_tokens=max_new_ids
                )
        finally:
            handle.remove()
        # Later calls read one id each; a first call of several ids may follow one that detects the language.
        start_call = max(index for index, ids in enumerate(calls) if index == 0 or len(ids) > 1)
        read_ids = [ids[-1] for ids in calls[start_call + 1 :]]  # all generated ids but the last, which no call reads
        has_ended = len(read_ids) + 1 < max_new_ids
        end_ids: Any = model.generation_config.eos_token_id
        end_ids = end_ids if isinstance(end_ids, list) else [end_ids]
        # some models leave the end out of their output
        last_id = end_ids[0] if has_ended and end_ids and end_ids[0] is not None else int(output[0, -1])
        return calls[start_call], [*read_ids, last_id]


def text_ids(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    """Returns the ids of a text without special tokens; a space before the text is added, as in generated texts."""
    text_after_space = f" {text.strip()}"
    refuse_large([text])
    ids: list[int] = tokenizer(text_after_space, add_special_tokens=False)["input_ids"]
    if not ids:
        raise AttnvizError("no tokens in the text; give the words of the sound, or none")
    return ids


def _special_tokens(tokenizer: "PreTrainedTokenizerBase", text: str, ids: list[int]) -> Tokens:
    """Returns the special tokens of ids, with an empty place at the end of the text; empty without ids."""
    from attnviz.text.tokens import tokens_of_pieces

    names = [str(name) for name in tokenizer.convert_ids_to_tokens(ids)]
    return tokens_of_pieces(text, ids, names, [(len(text), len(text))] * len(ids), np.ones(len(ids), dtype=bool))
