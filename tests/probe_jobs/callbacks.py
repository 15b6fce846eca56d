"""Train with a framework and hand its losses over by our callback; usage: callbacks.py WHICH DIR.

What the framework itself logged goes to a file of its own as one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import rankscope_probe

STEPS = 12


def transformers(folder: Path) -> dict[str, Any]:
    from trainers import Texts, language_model
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        use_cpu=True,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        include_num_input_tokens_seen="all",
    )
    calls = [rankscope_probe.transformers_callback()]
    trainer = Trainer(language_model(), arguments, train_dataset=Texts(), callbacks=calls)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    tokens = trainer.state.num_input_tokens_seen
    return {"losses": losses, "tokens": tokens, "epoch": trainer.state.epoch}


def lightning(folder: Path) -> dict[str, Any]:
    import lightning.pytorch as pl

    losses = []

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = self.layer(batch[0]).square().mean()
            losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=3,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[rankscope_probe.lightning_callback()],
    )
    trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(4 * STEPS // 3, 4)), batch_size=4))
    return {"losses": losses, "epoch": 3}


if __name__ == "__main__":
    place = Path(sys.argv[2])
    what = {"transformers": transformers, "lightning": lightning}[sys.argv[1]](place)
    (place / "logged.json").write_text(json.dumps(what))
