"""Finds the layers of a hybrid model that ran without attention, and names what they compute instead."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping

from torch import nn

from attnviz.capture.flow.sites import ModuleIndex, is_within, prefixes

# What the field calls a part, by the end of its class's name, from models of transformers and the libraries of their
# authors; the first that fits counts. Where a name has no version of Mamba, the code of the class says which one it is.
KINDS_OF_PARTS = {
    r"GatedDeltaNet": "gated delta net",
    r"DeltaNet": "delta net",
    r"(Kimi|KimiLinear|BailingHybrid)DeltaAttention|Glm5NextTextLinearAttention": "Kimi delta attention",
    r"Mamba2(Mixer|Layer)?|Zamba2MambaMixer|BambaMixer|GraniteMoeHybridMambaLayer": "Mamba 2",
    r"Mamba(Mixer)?": "Mamba",
    r"RecurrentGemmaRecurrentBlock": "gated linear recurrence",
    r"Rwkv\w*Attention|RWKV\w*Attention": "RWKV",
    r"LightningAttention": "lightning attention",
    r"MultiScaleRetention": "retention",
    r"ShortConv": "convolution",
}
# What configurations call a layer, where the word alone says little
KINDS_OF_WORDS = {"conv": "convolution", "moe": "mixture of experts", "mlp": "feed-forward network"}


def silent_layers(
    modules: ModuleIndex,
    attending: Collection[str],
    explained: Callable[[], Collection[str]],
    softmaxes: Collection[str] = (),
) -> dict[int, str]:
    """Returns what each layer without attention computes, such as ``linear attention``, by the layer's number.

    Args:
        modules: the modules of the model.
        attending: the paths of all modules that attended.
        explained: returns the paths of modules whose result is described elsewhere; their layers are left out.
        softmaxes: the paths of modules whose attention has a softmax, where ``attending`` have another one.
    """
    lists: dict[str, set[str]] = {}  # the attending blocks of each list of blocks
    for path in attending:
        if path in modules.modules:
            block = modules.block_of(path, type(modules.modules[path]))
            name = block.path.rpartition(".")[2]
            if block.number is not None and name.isdecimal() and int(name) == block.number:
                lists.setdefault(block.path.rpartition(".")[0], set()).add(block.path)

    layers: dict[int, str] = {}
    for stack, attending_blocks in lists.items():
        blocks = [
            f"{stack}.{name}".removeprefix(".")
            for name, child in modules.modules[stack].named_children()
            if name.isdecimal() and child._modules
        ]
        silent_blocks = [block for block in blocks if not any(is_within(path, block) for path in attending)]
        if not silent_blocks:
            continue
        explained_paths = explained()
        words = _words_of_blocks(modules.modules, stack, blocks, attending_blocks)
        for block_path in silent_blocks:
            is_explained = any(is_within(path, block_path) for path in explained_paths)
            word = words.get(block_path, "")
            if any(is_within(path, block_path) for path in softmaxes):
                content = word or "attention"
            else:
                content = _content_of(modules.modules, block_path, attending_blocks, word)
            if content and not is_explained:
                layers[int(block_path.rpartition(".")[2])] = content
    return layers


def _words_of_blocks(
    modules: Mapping[str, nn.Module], stack: str, blocks: list[str], attending: Iterable[str]
) -> dict[str, str]:
    """Returns the word of each block in the list of a configuration that tells attending blocks from others."""
    attending_numbers = [number for number, block in enumerate(blocks) if block in attending]
    for path in ("", *prefixes(stack)):
        settings = vars(getattr(modules.get(path), "config", None) or object)
        for words in settings.values():
            if not isinstance(words, (list, tuple)) or len(words) != len(blocks):
                continue
            if all(isinstance(word, str) for word in words):
                attending_words = {words[number] for number in attending_numbers}
                others = {block: word for block, word in zip(blocks, words, strict=True) if word not in attending_words}
                if others:
                    return {block: KINDS_OF_WORDS.get(word, word.replace("_", " ")) for block, word in others.items()}
    return {}


def _content_of(modules: Mapping[str, nn.Module], block: str, attending: Iterable[str], word: str) -> str:
    """Returns what a block computes, by the classes of its parts that no attending block has, or by its word.

    Class names that are not known stand for themselves if the block has a part like those of attending blocks; "" else.
    """
    parts, others = modules[block]._modules, [modules[path]._modules for path in attending]
    known_classes = {type(part) for other in others for part in other.values()}
    classes = [type(part).__name__ for part in parts.values() if part is not None and type(part) not in known_classes]
    for ending, kind in KINDS_OF_PARTS.items():
        if any(re.search(f"({ending})$", name) for name in classes):
            return kind
    has_same_part = any(parts.keys() & other.keys() for other in others)
    return word or (" and ".join(dict.fromkeys(classes)) if has_same_part else "")
