"""Finds the layers of a hybrid model that ran without attention, and names what they compute instead."""

from collections.abc import Callable, Collection, Iterable, Mapping

from torch import nn

from attnviz.capture.flow.sites import ModuleIndex, prefixes
from attnviz.capture.hooks.compiled import is_within


def silent_layers(
    modules: ModuleIndex, attending: Collection[str], explained: Callable[[], Collection[str]]
) -> dict[int, str]:
    """Returns what each layer without attention computes, such as ``linear attention``, by the layer's number.

    Args:
        modules: the modules of the model.
        attending: the paths of all modules that attended.
        explained: returns the paths of modules whose result is described elsewhere; their layers are left out.
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
            content = words.get(block_path) or _own_classes(modules.modules, block_path, attending_blocks)
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
                    return {block: word.replace("_", " ") for block, word in others.items()}
    return {}


def _own_classes(modules: Mapping[str, nn.Module], block: str, attending: Iterable[str]) -> str:
    """Returns the classes of a block's parts that no attending block has; "" if the block has no part like theirs."""
    parts = modules[block]._modules
    others = [modules[path]._modules for path in attending]
    if not any(parts.keys() & other.keys() for other in others):
        return ""
    known_classes = {type(part) for other in others for part in other.values()}
    classes = [type(part) for part in parts.values() if part is not None and type(part) not in known_classes]
    return " and ".join(dict.fromkeys(part.__name__ for part in classes))
