"""A small vision transformer that reads patches in the order of the wind. It knows nothing of ranks."""

from __future__ import annotations

from collections import OrderedDict
from statistics import fmean
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F  # noqa: N812
from fields import REACH, SIDE
from torch import Tensor, nn

PATCH = 4
ACROSS = SIDE // PATCH  # patches in a row
Batch = tuple[Tensor, Tensor, Tensor, Tensor]


class Attention(nn.Module):
    """Attention between patches. With ``topography``, air from lower patches counts for less."""

    def __init__(self, width: int, heads: int, *, topography: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.topography = topography
        if topography:
            self.elevation_alpha = nn.Parameter(torch.tensor(0.01))
            self.register_buffer("H_scale", torch.tensor(1000.0))

    def forward(self, x: Tensor, climb: Tensor) -> Tensor:
        """``climb`` [rows, to, from] are the metres that air climbs from one patch to another."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        bias = -self.elevation_alpha * (climb / self.H_scale).relu()[:, None] if self.topography else None
        return self.proj(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, *, mlp: tuple[str, str, str], topography: bool) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, heads, topography=topography)
        layers = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.norm2, self.mlp = nn.LayerNorm(width), nn.Sequential(OrderedDict(zip(mlp, layers, strict=True)))

    def forward(self, x: Tensor, climb: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), climb)
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """``mlp`` are the names of the layers in each MLP: they differ between libraries, and between versions of one."""

    def __init__(
        self, *, width: int = 48, depth: int = 2, heads: int = 4, mlp: tuple[str, str, str], topography: bool
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH * 4 + 2, width)  # pollutants, elevation, wind
        self.place = nn.Parameter(0.02 * torch.randn(ACROSS * ACROSS, width))
        self.scan = nn.Parameter(0.02 * torch.randn(ACROSS * ACROSS, width))
        self.blocks = nn.ModuleList(
            Block(width, heads, mlp=mlp, topography=topography and number == 0) for number in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, PATCH * PATCH * 3)

    def forward(self, now: Tensor, elevation: Tensor, wind: Tensor) -> Tensor:
        """Return the pollutants an hour later, [rows, 3, SIDE, SIDE]."""
        patches = F.pixel_unshuffle(torch.cat([now, elevation[:, None] / 1000], dim=1), PATCH).flatten(2).mT
        heights = F.avg_pool2d(elevation[:, None], PATCH).flatten(1)
        everywhere = (wind / REACH)[:, None].expand(-1, patches.shape[1], -1)
        x = self.embed(torch.cat([patches, everywhere], dim=-1)) + self.place
        order = downwind(wind)
        x = x.gather(1, order[..., None].expand_as(x)) + self.scan
        heights = heights.gather(1, order)
        climb = heights[:, :, None] - heights[:, None, :]
        for block in self.blocks:
            x = block(x, climb)
        back = order.argsort(dim=1)[..., None]
        later = self.head(self.norm(x))
        later = later.gather(1, back.expand_as(later)).mT.unflatten(2, (ACROSS, ACROSS))
        return F.pixel_shuffle(later, PATCH)


def downwind(wind: Tensor) -> Tensor:
    """Return the numbers of the patches, [rows, patches], from the one that the wind [rows, 2] meets first."""
    row, column = torch.meshgrid(torch.arange(ACROSS), torch.arange(ACROSS), indexing="ij")
    places = torch.stack([row, column]).flatten(1).to(wind)
    return (wind @ places).argsort(dim=1, stable=True)


class Forecast(pl.LightningModule):
    """What the training of both models shares."""

    net: ViT

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.losses: list[float] = []  # on this rank: of the validation under way
        self.validated: list[float] = []  # and of those that are done

    def training_step(self, batch: Batch, *_: Any) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Batch, *_: Any) -> None:
        loss = self.loss(batch)
        self.losses.append(loss.item())
        self.log("val_loss", loss, sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        self.validated.append(fmean(self.losses))
        self.losses.clear()

    def loss(self, batch: Batch) -> Tensor:
        *seen, later = batch
        return F.mse_loss(self.forecast(*seen), later)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Baseline(Forecast):
    """What was trained first: timm's names, and flat country."""

    def __init__(self, lr: float) -> None:
        super().__init__(lr)
        self.model = ViT(mlp=("fc1", "act", "fc2"), topography=False)
        self.forecast = self.model.forward


class TopoFlow(Forecast):
    """What is to be fine-tuned: other names, and an elevation bias in the first block's attention."""

    def __init__(self, lr: float) -> None:
        super().__init__(lr)
        self.climax = ViT(mlp=("0", "1", "2"), topography=True)
        self.forecast = self.climax.forward
