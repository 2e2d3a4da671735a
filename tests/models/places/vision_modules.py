"""Small vision modules, each in the style of a library or paper, with what is known of the places of their tokens.

Every module reads the same picture of 96 x 64 pixels, whose function makes an input of 48 x 32 or less from it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 16  # features of a token
GRID = (4, 6)  # patches of 8 x 8 pixels of the input, 16 x 16 of the picture


@dataclass(frozen=True)
class Axis:
    """What is known of the tokens of an axis: rows and columns of patches, and tokens without a place around them."""

    grid: tuple[int, int] = GRID
    before: int = 0
    after: int = 0
    pictures: int = 1

    def __len__(self) -> int:
        return self.before + self.pictures * self.grid[0] * self.grid[1] + self.after


NOWHERE = None  # an axis without places


def tensor_of(image: Any, size: tuple[int, int] = (48, 32)) -> Tensor:
    """Returns a picture as torchvision does, ``(colours, rows, columns)``, without an axis of texts."""
    return torch.from_numpy(np.array(image.resize(size))).permute(2, 0, 1).float().div(255).sub(0.45).div(0.225)


def batch_of(image: Any) -> Tensor:
    return tensor_of(image)[None]


class OfBatch(nn.Module):
    """Takes a batch whole, as training code passes it on."""

    def __init__(self, module: nn.Module, read: Any) -> None:
        super().__init__()
        self.module, self.read = module, read

    def forward(self, batch: Any, scale: float = 1.0, **options: Any) -> Any:
        return self.module(scale * self.read(batch))


class QkvAttention(nn.Module):
    """timm's attention: one projection of queries, keys and values, and a fused kernel."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        texts, count, width = x.shape
        q, k, v = self.qkv(x).reshape(texts, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        result: Tensor = self.proj(self.attend(q, k, v).transpose(1, 2).reshape(texts, count, width))
        return result

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v)


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), attention
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


class Patches(nn.Module):
    """A convolution to patches, with learned positions and tokens before them."""

    def __init__(self, before: int = 0, after: int = 0, stem: nn.Module | None = None, count: int = 24) -> None:
        super().__init__()
        self.stem = stem or nn.Conv2d(3, WIDTH, 8, 8)
        self.before, self.after = (nn.Parameter(torch.randn(1, each, WIDTH)) for each in (before, after))
        self.positions = nn.Parameter(torch.randn(1, count, WIDTH))

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.stem(pixels).flatten(2).transpose(1, 2) + self.positions
        return torch.cat([self.before.expand(len(x), -1, -1), x, self.after.expand(len(x), -1, -1)], 1)


def stack(before: int = 0, after: int = 0, attention: Callable[[], nn.Module] = QkvAttention, **options: Any) -> Any:
    return nn.Sequential(Patches(before, after, **options), *(Block(attention()) for _ in range(2)))


class EinsumAttention(QkvAttention):
    """vit-pytorch's attention: equations, and a softmax written out."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("b h i d, b h j d -> b h i j", q, k) * q.shape[-1] ** -0.5
        return torch.einsum("b h i j, b h j d -> b h i d", scores.softmax(dim=-1), v)


class VitPytorch(nn.Module):
    """Patches are rearranged and projected, without a convolution; ``[CLS]`` comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cls_token = nn.Linear(192, WIDTH), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.layers = nn.ModuleList([nn.ModuleList([EinsumAttention(), nn.Linear(WIDTH, WIDTH)]) for _ in range(2)])

    def forward(self, img: Tensor) -> Tensor:
        texts, colours, height, width = img.shape
        patches = img.reshape(texts, colours, height // 8, 8, width // 8, 8).permute(0, 2, 4, 3, 5, 1)
        x = torch.cat([self.cls_token, self.embed(patches.reshape(texts, -1, 192))], 1)
        layers: Any = self.layers
        for attend, feed in layers:
            x = x + attend(x)
            x = x + feed(x)
        return x.mean(1)


class OpenClipBlock(nn.Module):
    """open_clip's block: torch's own attention with tokens before texts."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.ln, self.attn, self.mlp = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, heads), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        normed = self.ln(x)
        keys = normed if context is None else context
        x = x + self.attn(normed, keys, keys, need_weights=False)[0]
        return x + functional.gelu(self.mlp(x))


class OpenClip(nn.Module):
    """Two towers in one module: a picture and a text of 5 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.visual = nn.ModuleDict({"embed": Patches(1), "blocks": nn.ModuleList([OpenClipBlock() for _ in range(2)])})
        self.token_embedding = nn.Embedding(9, WIDTH)
        self.transformer = nn.ModuleList([OpenClipBlock() for _ in range(2)])

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        x: Tensor = self.visual["embed"](image).transpose(0, 1)
        blocks: Any = self.visual["blocks"]
        for block in blocks:
            x = block(x)
        words: Tensor = self.token_embedding(text).transpose(0, 1)
        for block in self.transformer:
            words = block(words)
        return x[0] @ words[-1].T


class MaskedAutoencoder(nn.Module):
    """MAE: patches are shuffled at random, and half of them are dropped; or given ones are kept."""

    def __init__(self, kept: list[int] | None = None) -> None:
        super().__init__()
        self.kept = kept
        self.embed, self.cls_token = Patches(), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.blocks = nn.Sequential(*(Block(QkvAttention()) for _ in range(2)))
        self.order = torch.arange(24)

    def forward(self, imgs: Tensor) -> Tensor:
        x = self.embed(imgs)
        self.order = torch.rand(x.shape[1]).argsort()[:12] if self.kept is None else torch.tensor(self.kept)
        result: Tensor = self.blocks(torch.cat([self.cls_token, x[:, self.order]], 1))
        return result


class WindowAttention(QkvAttention):
    """Swin's attention in windows of 2 x 2 patches, which the second block shifts."""

    def __init__(self, shift: int = 0) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = GRID
        lattice = x.reshape(1, rows, columns, WIDTH).roll((-self.shift, -self.shift), (1, 2))
        windows = lattice.reshape(1, rows // 2, 2, columns // 2, 2, WIDTH).permute(0, 1, 3, 2, 4, 5)
        joined = super().forward(windows.reshape(-1, 4, WIDTH)).reshape(1, rows // 2, columns // 2, 2, 2, WIDTH)
        lattice = joined.permute(0, 1, 3, 2, 4, 5).reshape(1, rows, columns, WIDTH)
        return lattice.roll((self.shift, self.shift), (1, 2)).reshape(x.shape)


def swin() -> nn.Module:
    return nn.Sequential(Patches(), Block(WindowAttention()), Block(WindowAttention(1)))


class TalkingHeads(QkvAttention):
    """CaiT's attention, whose heads are mixed before and after the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(2, 2), nn.Linear(2, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = self.before((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        weights = self.after(scores.softmax(dim=-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        result: Tensor = weights @ v
        return result


class ClassAttention(nn.Module):
    """CaiT's last layers: only ``[CLS]`` asks."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.reshape(1, -1, 2, WIDTH // 2).transpose(1, 2) for part in (self.q(x[:, :1]), self.k(x), self.v(x))
        )
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        result: Tensor = (weights @ v).transpose(1, 2).reshape(1, 1, WIDTH)
        return result


class CaiT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cls_token = Patches(), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.blocks = nn.ModuleList([Block(TalkingHeads()) for _ in range(2)])
        self.blocks_token_only = nn.ModuleList([ClassAttention()])

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        x = torch.cat([self.cls_token, x], 1)
        for block in self.blocks_token_only:
            x = torch.cat([x[:, :1] + block(x), x[:, 1:]], 1)
        return x[:, 0]


class PositionalAttention(QkvAttention):
    """ConViT's attention: a gate between the weights of contents and those of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.positional = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.randn(1, 2, 24, 24))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        gate = self.gate.sigmoid().view(1, -1, 1, 1)
        weights = (1 - gate) * (q @ k.mT).softmax(-1) + gate * self.positional.softmax(-1)
        return (weights / weights.sum(-1, keepdim=True)) @ v


def video_of(images: Any) -> Tensor:
    return torch.stack([tensor_of(image) for image in images], dim=1)


class TubeletTransformer(nn.Module):
    """ViViT: a 3-D convolution makes patches of frames."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block = nn.Conv3d(3, WIDTH, (1, 8, 8), (1, 8, 8)), Block(QkvAttention())

    def forward(self, video: Tensor) -> Tensor:
        result: Tensor = self.block(self.stem(video).flatten(2).transpose(1, 2))
        return result


class Detr(nn.Module):
    """DETR: a convolutional network, torch's own encoder and decoder, and 5 object queries."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, WIDTH, 2, 2)
        )
        self.transformer = nn.Transformer(WIDTH, 2, 1, 2, 32, batch_first=True)
        self.queries, self.box = nn.Parameter(torch.randn(1, 5, WIDTH)), nn.Linear(WIDTH, 4)

    def forward(self, samples: Tensor) -> dict[str, Tensor]:
        memory = self.backbone(samples).flatten(2).transpose(1, 2)
        return {"boxes": self.box(self.transformer(memory, self.queries))}


class Perceiver(nn.Module):
    """Latents read patches by cross-attention, then each other."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.latents = Patches(), nn.Parameter(torch.randn(1, 7, WIDTH))
        self.cross_attend, self.self_attend = OpenClipBlock(), OpenClipBlock()

    def forward(self, x: Tensor) -> Tensor:
        patches = self.embed(x).transpose(0, 1)
        result: Tensor = self.self_attend(self.cross_attend(self.latents.transpose(0, 1), patches))
        return result


class MultipleInstance(nn.Module):
    """Pathology: a convolutional network reads tiles of a slide, and one learned query pools them."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, WIDTH, 4, 4), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 2, 2))
        self.query = nn.Parameter(torch.randn(1, WIDTH))
        self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, tiles: Tensor) -> Tensor:
        x = self.encode(tiles).mean((2, 3))  # (tiles, features)
        weights = (self.query @ self.key(x).T).softmax(dim=-1)
        result: Tensor = weights @ self.value(x)
        return result


def tiles_of(image: Any) -> Tensor:
    return tensor_of(image).reshape(3, 4, 8, 6, 8).permute(1, 3, 0, 2, 4).reshape(24, 3, 8, 8)


class Unet(nn.Module):
    """A stage of a UNet: pixels of a feature map look at each other, then at the words of a prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_in, self.norm = nn.Conv2d(3, WIDTH, 8, 8), nn.GroupNorm(4, WIDTH)
        self.attn1, self.attn2 = Block(QkvAttention()), OpenClipBlock()
        self.words = nn.Embedding(9, WIDTH)

    def forward(self, sample: Tensor, prompt: Tensor) -> Tensor:
        x = self.norm(self.conv_in(sample)).flatten(2).transpose(1, 2)
        result: Tensor = self.attn2(self.attn1(x).transpose(0, 1), self.words(prompt).transpose(0, 1))
        return result


class ChannelsLast(nn.Module):
    """Reads rows, columns and colours as bytes, as a Flax port does."""

    def __init__(self) -> None:
        super().__init__()
        self.vit = stack(1)

    def forward(self, pixels: Tensor) -> Tensor:
        result: Tensor = self.vit(pixels.permute(0, 3, 1, 2).float() / 255)
        return result


class Functions(nn.Module):
    """Everything in one ``forward``, from parameters alone."""

    def __init__(self) -> None:
        super().__init__()
        self.w_in, *weights = (
            nn.Parameter(torch.randn(shape) / 9) for shape in ((WIDTH, 3, 8, 8), *[(WIDTH, WIDTH)] * 6)
        )
        self.weights = nn.ParameterList(weights)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.conv2d(x, self.w_in, stride=8).flatten(2).transpose(1, 2)
        for layer in range(2):
            q, k, v = (x @ self.weights[3 * layer + part] for part in range(3))
            x = x + torch.softmax(q @ k.transpose(1, 2) / 4, -1) @ v
        return x


class FlatPatches(nn.Module):
    """NaViT: the function cuts the patches, and the module reads them in a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block = nn.Linear(192, WIDTH), Block(QkvAttention())

    def forward(self, patches: Tensor) -> Tensor:
        result: Tensor = self.block(self.embed(patches))
        return result


def flat_patches_of(image: Any) -> Any:
    """Returns patches in a sequence as an array, ``(patches, numbers)``, without an axis of texts."""
    pixels = tensor_of(image).reshape(3, 4, 8, 6, 8).permute(1, 3, 2, 4, 0)
    return pixels.reshape(24, 192).numpy().astype(np.float64)


class Policy(nn.Module):
    """A robot's policy: two cameras and the joints are tokens of one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.eye, self.body, self.block = Patches(), nn.Linear(7, WIDTH), Block(QkvAttention())

    def forward(self, cameras: Tensor, joints: Tensor) -> Tensor:
        seen = [self.eye(camera) for camera in cameras.unbind(1)]
        result: Tensor = self.block(torch.cat([self.body(joints)[:, None], *seen], 1))
        return result


def cameras_of(images: Any) -> dict[str, Tensor]:
    return {"cameras": torch.stack([tensor_of(image) for image in images]), "joints": torch.arange(7.0)}


class Sorted(QkvAttention):
    """Attention that sorts patches in an order of its own before it, and back after it."""

    def __init__(self, order: Tensor) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, self.order])[:, self.order.argsort()]


class Rolled(QkvAttention):
    """Swin's last stage: one window over all patches, which are rolled in it."""

    def forward(self, x: Tensor) -> Tensor:
        rolled = x.reshape(1, *GRID, WIDTH).roll((-1, -1), (1, 2)).reshape(x.shape)
        return super().forward(rolled).reshape(1, *GRID, WIDTH).roll((1, 1), (1, 2)).reshape(x.shape)


class Gathered(nn.Module):
    """Patches are gathered in another order before all layers, as an index tells."""

    def __init__(self, order: Tensor) -> None:
        super().__init__()
        self.embed, self.blocks, self.order = Patches(), plain_blocks(), order

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        result: Tensor = self.blocks(x.gather(1, self.order[None, :, None].expand(-1, -1, WIDTH)))
        return result


def plain_blocks() -> nn.Module:
    return nn.Sequential(*(Block(QkvAttention()) for _ in range(2)))


def orders() -> list[Tensor]:
    return [torch.randperm(24, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]


IN_ORDER = torch.arange(24)
# modules that read patches in another order, each beside one that computes the same in the order of the picture
REORDERED: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "an order of its own in each layer": (
        lambda: nn.Sequential(Patches(), *(Block(Sorted(order)) for order in orders())),
        lambda: nn.Sequential(Patches(), *(Block(Sorted(IN_ORDER)) for _ in orders())),
    ),
    "one rolled window": (lambda: stack(attention=Rolled), stack),
    "gathered before all layers": (lambda: Gathered(orders()[0]), lambda: Gathered(IN_ORDER)),
}


class MixedTokens(nn.Module):
    """A mixer before attention: each token is computed from all patches."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.block = Patches(), nn.Linear(24, 24), Block(QkvAttention())

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.block(self.mix(self.embed(x).transpose(1, 2)).transpose(1, 2))
        return result


class SpatialReduction(nn.Module):
    """PVT's attention: keys are joined patches, 2 x 2 each."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.reduce = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Conv2d(WIDTH, WIDTH, 2, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        lattice = x.transpose(1, 2).reshape(1, WIDTH, *GRID)
        k, v = self.kv(self.reduce(lattice).flatten(2).transpose(1, 2)).chunk(2, -1)
        heads = [part.reshape(1, -1, 2, WIDTH // 2).transpose(1, 2) for part in (self.q(x), k, v)]
        return functional.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(x.shape)


def z_scored(image: Any) -> Tensor:
    pixels = batch_of(image)
    return (pixels - pixels.mean()) / (pixels.std() + 1e-6)


def hybrid_stem() -> nn.Module:
    layers = [nn.Conv2d(width, after, 3, 2, 1) for width, after in ((3, 8), (8, 8), (8, WIDTH))]
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


PROMPT = torch.tensor([[1, 2, 3, 4, 5]])
PATCHES, WITH_CLASS = Axis(), Axis(before=1)


@dataclass(frozen=True)
class Case:
    """A module with the function for its pictures, and the axes of queries and keys of all drawn maps."""

    build: Callable[[], nn.Module]
    make: Callable[[Any], Any]
    queries: Axis | None
    keys: Axis | None
    attention: str | None = None
    pictures: int = 1
    layers: int = 2
    tolerance: int = 0  # pixels of the picture: overlapping patches are cells around centres that a stem moves


def self_attention(
    build: Callable[[], nn.Module], make: Callable[[Any], Any], axis: Axis | None, **options: Any
) -> Case:
    return Case(build, make, axis, axis, **options)


MODULES = {
    "timm ViT": self_attention(lambda: stack(1), tensor_of, WITH_CLASS),
    "DeiT, distilled": self_attention(lambda: stack(2), batch_of, Axis(before=2)),
    "DINO, registers last": self_attention(lambda: stack(1, 4), batch_of, Axis(before=1, after=4)),
    "vit-pytorch": self_attention(VitPytorch, lambda image: {"img": tensor_of(image), "name": "x"}, WITH_CLASS),
    "open_clip, two towers": self_attention(OpenClip, lambda image: (batch_of(image), PROMPT), WITH_CLASS),
    "Swin": self_attention(swin, batch_of, PATCHES),
    "CaiT, talking heads": self_attention(lambda: stack(attention=TalkingHeads), batch_of, PATCHES),
    "CaiT, class attention": Case(CaiT, batch_of, Axis((0, 0), before=1), WITH_CLASS, layers=1),
    "ConViT": self_attention(lambda: stack(attention=PositionalAttention), batch_of, PATCHES),
    "hybrid stem": self_attention(lambda: stack(1, stem=hybrid_stem()), batch_of, WITH_CLASS, tolerance=7),
    "ViViT": self_attention(TubeletTransformer, video_of, Axis(pictures=2), pictures=2, layers=1),
    "DETR, objects": Case(Detr, tensor_of, NOWHERE, PATCHES, tolerance=2),
    "DETR, patches": self_attention(Detr, tensor_of, PATCHES, attention="encoder", layers=1, tolerance=2),
    "DETR, among objects": self_attention(Detr, tensor_of, NOWHERE, attention="decoder"),
    "Perceiver": Case(Perceiver, batch_of, NOWHERE, PATCHES, layers=1),
    "pathology MIL": Case(MultipleInstance, tiles_of, Axis((0, 0), before=1), PATCHES, layers=1),
    "UNet, patches": self_attention(Unet, lambda image: (batch_of(image), PROMPT), PATCHES, layers=1),
    "UNet, words": Case(Unet, lambda image: (batch_of(image), PROMPT), PATCHES, NOWHERE, attention="decoder", layers=1),
    "channels last": self_attention(ChannelsLast, lambda image: np.array(image.resize((48, 32))), WITH_CLASS),
    "functions alone": self_attention(Functions, batch_of, PATCHES),
    "flattened patches": self_attention(FlatPatches, flat_patches_of, PATCHES, layers=1),
    "PVT": Case(lambda: stack(attention=SpatialReduction), batch_of, PATCHES, Axis((2, 3))),
    "a robot's policy": self_attention(Policy, cameras_of, Axis(before=1, pictures=2), pictures=2, layers=1),
}


# what cannot be known, and why
def tiles_by_contrast(image: Any) -> Tensor:
    """The tiles of a picture, those with most contrast first, as a slide's are chosen."""
    pixels = batch_of(image)
    tiles = pixels.unfold(2, 16, 16).unfold(3, 16, 16)
    order = (-tiles.std((0, 1, 4, 5))).flatten().argsort(stable=True)
    mosaic: Tensor = tiles.flatten(2, 3)[:, :, order].reshape(tiles.shape).permute(0, 1, 2, 4, 3, 5)
    return mosaic.reshape(pixels.shape)


def tissue(image: Any) -> Tensor:
    """A picture that is not empty."""
    pixels = batch_of(image)
    if pixels.std() < 0.01:
        raise ValueError("no tile has any tissue")
    return pixels


UNKNOWN = {
    "tokens of all patches": (MixedTokens, batch_of, "each pixel belongs to several tokens"),
    "tiles in the order of their contrast": (
        lambda: stack(1),
        tiles_by_contrast,
        "which part of the picture input holds depends on what is in it",
    ),
    "a function that reads no empty picture": (
        lambda: stack(1),
        tissue,
        "fails on one of a single colour or a ramp: no t",
    ),
    "scaled by its own mean": (lambda: stack(1), z_scored, "gives the same numbers for a black and for a white one"),
}
