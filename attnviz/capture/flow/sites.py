"""Finds where in a model an attention call was made: its module, layer, kind and number of heads.

A layer is the block around the call: the innermost module with a number in its name that holds more weights than the
attention. Its number is the number of the layer; where blocks stand in lists within lists, the layer is numbered by its
place among all of them. A block that runs again is the next layer; a stack of blocks that runs again reads another
text.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from torch import nn

from attnviz.maps.layer_maps import Kind
from attnviz.text.selection import AttentionPart

CROSS_NAME = re.compile(r"cross|enc(oder)?_?(dec)?_?att|multihead_attn", re.IGNORECASE)
SINGLE_HEAD_NAME = re.compile(r"(.*head[^.]*)\.(\d+)$", re.IGNORECASE)
NUMBERED_NAME = re.compile(r"(.*?)(\d+)$")
NUMBERS = re.compile(r"\d+")
PASSIVE_MODULES = (nn.Softmax, nn.Dropout)  # the module that attends calls them
CALL_NAMES = ("forward", "_call_impl", "_wrapped_call_impl")  # functions that run while a module is called
HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "nheads", "heads", "h")
MATRIX_AXES = 2  # weights with as many axes are matrices: a block has some outside its attention, a norm has none


@dataclass(frozen=True, eq=False)
class CallingModule:
    """The module that made a call."""

    module: nn.Module  # the module
    name: str  # its path in the model
    cross: bool  # True if its keys come from another text

    @property
    def part(self) -> AttentionPart:
        """The kind of attention that the module computes in an encoder-decoder.

        It is ``cross`` for cross-attention, else ``decoder`` if its path contains that word, else ``encoder``.
        """
        if self.cross:
            return "cross"
        return "decoder" if "decoder" in self.name.lower() else "encoder"


@dataclass(frozen=True)
class CallSite:
    """The place of an attention call in the model, with its numbers."""

    layer: int  # the number of its layer, from 0
    head: int | None  # the number of its only head if each head is a module of its own, else ``None``
    module: str  # the path of the module
    kind: Kind  # self or cross
    stack: str  # the path of the list of layers that contains it
    part: AttentionPart  # the kind of attention in an encoder-decoder: encoder, decoder or cross
    call: int = 0  # its number among the calls of the module in one run, from 0
    run: int = 0  # the number of the stack's run in this forward pass, from 0
    repeated_module: str = ""  # the path of a module around it that ran more than once in this pass; empty if none did
    pools_queries: bool = False  # True if each of its queries stands for several tokens


@dataclass(frozen=True)
class Block:
    """The layer around a call."""

    path: str  # its path in the model
    number: int | None  # its number among the layers; ``None`` if no name on the path has a number
    stack: str  # the path of the list of layers that contains it, up to the first number


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Returns the modules of a model by path, each once, by its first path; the path of the model itself is "".

    It gives what ``named_modules`` gives, but faster, as it needs no nested generators.
    """
    modules: dict[str, nn.Module] = {}
    visited_modules: set[nn.Module] = set()

    def add(module: nn.Module, path: str) -> None:
        if type(module).named_modules is not nn.Module.named_modules:
            modules.update(module.named_modules(memo=visited_modules, prefix=path))
        elif module not in visited_modules:
            visited_modules.add(module)
            modules[path] = module
            for name, child in module._modules.items():
                if child is not None:
                    add(child, f"{path}.{name}" if path else name)

    add(model, "")
    return modules


class ModuleIndex:
    """Finds the names, kinds and layers of a model's modules."""

    def __init__(self, model: nn.Module) -> None:
        self.modules: Mapping[str, nn.Module] = modules_of(model)
        self.names = {id(module): name for name, module in reversed(self.modules.items())}
        self._are_weighted: dict[int, bool] = {}  # by the id of a module
        self.outsiders: dict[str, None] = {}  # the classes of other models that methods of this one called
        structure = tuple((name, id(module), type(module)) for name, module in self.modules.items())
        cache = _layer_caches.get(model)
        if cache is None or cache.structure != structure:  # another model, or its modules have changed
            cache = _layer_caches[model] = _LayerCache(structure)
        self._blocks, self._own_numbers, self._alike_numbers = cache.blocks, cache.own_numbers, cache.alike_numbers

    def has_weights(self, module: nn.Module) -> bool:
        """True if a module of the model has weights, or a module in it has."""
        has_weights = self._are_weighted.get(id(module))
        if has_weights is None:
            has_weights = self._are_weighted[id(module)] = next(module.parameters(), None) is not None
        return has_weights

    def contains(self, module: nn.Module) -> bool:
        """True if the module belongs to the model."""
        return id(module) in self.names

    def running(self, cross: bool | None = None) -> CallingModule | None:
        """Returns the innermost running module of the model, found on Python's stack; ``None`` if none runs.

        A running softmax or dropout does not count, since the module that calls it attends. Neither does a module
        without weights that several others share, and that another one calls than the one that its path names; nor a
        method of the model that calls another model, as ``generate`` calls one for drafts: `outsiders` notes that one.
        """
        frame = sys._getframe(1)
        shared: nn.Module | None = None  # a module without weights whose caller is not known yet
        outsider, is_called_by_method = "", False
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                owner = frame.f_locals.get("self")
                if not isinstance(owner, nn.Module) or isinstance(owner, PASSIVE_MODULES):
                    pass
                elif id(owner) not in self.names:
                    outsider = outsider if shared is not None else type(owner).__name__
                elif outsider and code.co_name not in CALL_NAMES:
                    is_called_by_method = True
                else:
                    name = self.names[id(owner)]
                    if shared is not None and self.names[id(shared)].startswith(f"{name}." if name else ""):
                        return self.describe(shared, cross)
                    if self.has_weights(owner):
                        return self.describe(owner, cross)
                    shared = owner
            frame = frame.f_back  # type: ignore[assignment]
        if is_called_by_method and shared is None:
            self.outsiders[outsider] = None
        return None if shared is None else self.describe(shared, cross)

    def describe(self, module: nn.Module, cross: bool | None = None) -> CallingModule:
        """Returns a module with its kind and its path; a module outside the model has its class's name as path."""
        name = self.names.get(id(module), type(module).__name__)
        if cross is not None:
            return CallingModule(module, name, cross)
        declared_kind = getattr(module, "is_cross_attention", None)
        if isinstance(declared_kind, bool):
            return CallingModule(module, name, declared_kind)
        last_names = ".".join(name.split(".")[-3:])
        return CallingModule(module, name, bool(CROSS_NAME.search(last_names)))

    def head_count(self, caller: CallingModule) -> int | None:
        """Returns the number of heads that an attribute of the module, or else of its parent, holds.

        ``None`` if neither has an attribute of ``HEAD_COUNTS`` that is a positive integer.
        """
        names = caller.name.split(".")
        for length in range(len(names), max(len(names) - 2, 0), -1):  # the module, then its parent
            module = self.modules.get(".".join(names[:length]), caller.module)
            for attribute in HEAD_COUNTS:
                count = getattr(module, attribute, None)
                if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                    return count
        return None

    def block_of(self, path: str, attention: type[nn.Module]) -> Block:
        """Returns the layer around an attention module; cached by path and class.

        It is the innermost module with a number in its name that has matrices outside its attention. Without such a
        module it is the innermost one with a number; without that, the attention module itself.
        """
        key = (path, attention)
        if key not in self._blocks:
            numbered_prefixes = [prefix for prefix in prefixes(path) if self.sibling_number(prefix) is not None]
            innermost_first = reversed(numbered_prefixes)
            blocks = (prefix for prefix in innermost_first if self._has_other_matrices(prefix, path, attention))
            if numbered_prefixes:
                block_path = next(blocks, numbered_prefixes[-1])
                stack = numbered_prefixes[0].rpartition(".")[0]
                self._blocks[key] = Block(block_path, self._rank(block_path, attention), stack)
            else:
                self._blocks[key] = Block(path, None, "")
        return self._blocks[key]

    def sibling_number(self, path: str) -> int | None:
        """Returns the number at the end of a path, as of ``block_3``, from 0; ``None`` if it counts no siblings."""
        if path not in self._own_numbers:
            parent, _, name = path.rpartition(".")
            match = NUMBERED_NAME.match(name)
            number = int(name) if name.isdecimal() else None
            if number is None and match is not None:
                siblings = self.modules[parent].named_children() if parent in self.modules else ()
                sibling_matches = [NUMBERED_NAME.match(sibling_name) for sibling_name, _ in siblings]
                numbers = [int(sibling[2]) for sibling in sibling_matches if sibling and sibling[1] == match[1]]
                counts_from = 1 if min(numbers, default=0) == 1 else 0
                number = int(match[2]) - counts_from if len(numbers) > 1 else None
            self._own_numbers[path] = number
        return self._own_numbers[path]

    def _has_other_matrices(self, path: str, attention_path: str, attention: type[nn.Module]) -> bool:
        """True if a module around an attention module has matrices outside of the attention in it."""
        if path == attention_path or path not in self.modules:
            return False
        attention_paths = [attention_path]
        for inner_path, module in self.modules[path].named_modules(prefix=path):
            if type(module) is attention:
                attention_paths.append(inner_path)
            is_attention = any(is_within(inner_path, known_path) for known_path in attention_paths)
            if not is_attention and any(weight.dim() >= MATRIX_AXES for weight in module.parameters(recurse=False)):
                return True
        return False

    def _rank(self, path: str, attention: type[nn.Module]) -> int:
        """Returns the number of a block; its place among all of its form if more than one number in its path varies."""
        path_numbers = self._numbers(path)
        key = (NUMBERS.sub("#", path), len(path_numbers), attention)
        if key not in self._alike_numbers:
            alike_paths = (other for other in self.modules if NUMBERS.sub("#", other) == key[0])
            found_numbers = (
                self._numbers(other)
                for other in alike_paths
                if any(type(module) is attention for module in self.modules[other].modules())
            )
            self._alike_numbers[key] = sorted(numbers for numbers in found_numbers if len(numbers) == len(path_numbers))
        alike_numbers = self._alike_numbers[key]
        varying_levels = [
            level
            for level, number in enumerate(path_numbers)
            if any(numbers[level] != number for numbers in alike_numbers)
        ]
        if len(varying_levels) > 1:
            return alike_numbers.index(path_numbers)
        return path_numbers[varying_levels[0] if varying_levels else -1]

    def _numbers(self, path: str) -> tuple[int, ...]:
        prefix_numbers = (self.sibling_number(prefix) for prefix in prefixes(path))
        return tuple(number for number in prefix_numbers if number is not None)


@dataclass(frozen=True)
class _LayerCache:
    """A cache of the layers of a model, for the next block that records it."""

    structure: tuple[tuple[str, int, type[nn.Module]], ...]
    blocks: dict[tuple[str, type[nn.Module]], Block] = field(default_factory=dict)
    own_numbers: dict[str, int | None] = field(default_factory=dict)
    alike_numbers: dict[tuple[str, int, type[nn.Module]], list[tuple[int, ...]]] = field(default_factory=dict)


_layer_caches: WeakKeyDictionary[nn.Module, _LayerCache] = (
    WeakKeyDictionary()
)  # they hold no modules, so that models can be freed


class LayerNumbering:
    """Assigns a layer to each call of a forward pass."""

    def __init__(self, modules: ModuleIndex) -> None:
        self.modules = modules
        self.start_counts: dict[str, int] = {}
        # The run of its parent in which each module without weights last ran, and its further runs in it
        self.parent_runs: dict[str, tuple[str, int]] = {}
        self.further_starts: Counter[str] = Counter()
        self.calls: Counter[tuple[object, ...]] = Counter()
        self.layers: dict[tuple[object, ...], int] = {}
        self.last_numbers: dict[tuple[object, ...], int] = {}
        self.depths: dict[str, int] = {}

    def start(self, module: nn.Module, parent: nn.Module | None = None) -> None:
        """Counts a run of a module inside the model; the model itself and other modules do not count."""
        name = self.modules.names.get(id(module))
        if not name:
            return
        self.start_counts[name] = self.start_counts.get(name, 0) + 1
        if self.modules.has_weights(module):
            return
        parent_name = self.modules.names.get(id(parent))
        if parent_name is None:
            return
        parent_run = parent_name, self.start_counts.get(parent_name, 0)
        if self.parent_runs.get(name) == parent_run:
            self.further_starts[name] += 1
        self.parent_runs[name] = parent_run

    def next_site(self, caller: CallingModule, is_single_head: bool, depth: int = 0) -> CallSite:
        """Returns the site of the next call of a module, and counts the call.

        If a stack of layers runs again on an input that no attention has computed, it reads another text: the site has
        the number of that run. If another module runs again, or the stack reads its own output, its calls are further
        layers. Of two layers that run twice, the second time is run 1 of layers 0 and 1, or layers 2 and 3. But a
        module without weights that its parent calls several times, each time on input of the same depth, is a function
        of the parent: its calls are further heads.
        """
        # The block around the call, and the modules around it that are counted. A call reads more attention than the
        # first one of its module if more calls lie before its input.
        single_head_match = SINGLE_HEAD_NAME.match(caller.name) if is_single_head else None
        path = caller.name if single_head_match is None else single_head_match[1]
        block = self.modules.block_of(path, type(caller.module))
        reads_more_attention = depth > self.depths.setdefault(caller.name, depth)
        enclosing_path = block.path
        if reads_more_attention:  # the outermost called module from the block to the attention module
            parts = (prefix for prefix in prefixes(caller.name) if len(prefix) >= len(block.path))
            enclosing_path = next((part for part in parts if self.start_counts.get(part)), block.path)

        # Which of them have run before in this pass, and if that is another text or further layers
        enclosing_paths = prefixes(enclosing_path)
        starts = {prefix: self.start_counts.get(prefix, 0) for prefix in enclosing_paths}
        if not reads_more_attention:
            starts = {prefix: count - self.further_starts[prefix] for prefix, count in starts.items()}
        repeated_module = next((prefix for prefix, count in starts.items() if count > 1), "")
        is_stack = block.path.startswith(f"{repeated_module}.") and self.modules.sibling_number(repeated_module) is None
        reads_other_text = bool(repeated_module) and not reads_more_attention and is_stack
        run = starts[repeated_module] - 1 if reads_other_text else 0
        repeats = tuple((prefix, count) for prefix, count in starts.items() if count > 1)
        call = self.calls[caller.name, repeats]
        self.calls[caller.name, repeats] += 1

        # The layer's number: the block's own, or the next one if the block has run before
        stack = (block.stack, caller.part, run)
        key = (*stack, block.path, repeats)
        if key not in self.layers:
            next_number = self.last_numbers.get(stack, -1) + 1
            ran_before = any(other_key[:-1] == key[:-1] for other_key in self.layers)  # with other repeats
            number = next_number if block.number is None else block.number
            self.layers[key] = max(number, next_number) if ran_before else number
            self.last_numbers[stack] = max(self.layers[key], self.last_numbers.get(stack, -1))
        return CallSite(
            layer=self.layers[key],
            head=None if single_head_match is None else int(single_head_match[2]),
            module=caller.name,
            kind="cross" if caller.cross else "self",
            stack=block.stack,
            part=caller.part,
            call=call,
            run=run,
            repeated_module=repeated_module,
        )


def prefixes(path: str) -> list[str]:
    """Returns the paths of all modules around the one at a path, the outermost first, and the path itself."""
    names = path.split(".")
    return [".".join(names[:length]) for length in range(1, len(names) + 1)]


def is_within(path: str, outer_path: str) -> bool:
    """True if a path is that of the outer module, or of one inside it; the path of the model itself is ""."""
    return not outer_path or path == outer_path or path.startswith(f"{outer_path}.")


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
