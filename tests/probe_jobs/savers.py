"""Train for eight steps with a framework that saves twice; usage: savers.py FRAMEWORK DIRECTORY."""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

SAVE_EVERY = 4
EVALUATE_EVERY = 6  # transformers alone
EVALUATED = 16  # samples in a batch
STEPS = 8


def lightning(directory: str) -> None:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Model(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            loss: torch.Tensor = self.layer(batch[0]).square().mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    saving = ModelCheckpoint(directory, every_n_train_steps=SAVE_EVERY, save_top_k=-1)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_steps=STEPS, accelerator="cpu", callbacks=[saving], **quiet)
    trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8))


def transformers(directory: str) -> None:
    import transformers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.layer(inputs).square().mean()}

    wanted = transformers.TrainingArguments(
        directory,
        max_steps=STEPS,
        save_steps=SAVE_EVERY,
        eval_strategy="steps",
        eval_steps=EVALUATE_EVERY,
        per_device_eval_batch_size=EVALUATED,
        report_to=[],
        use_cpu=True,
        logging_strategy="no",
        disable_tqdm=True,
    )
    data = [{"inputs": torch.randn(4)} for _ in range(64)]
    transformers.Trainer(Model(), wanted, train_dataset=data, eval_dataset=data).train()


def accelerate(directory: str) -> None:
    from accelerate import Accelerator

    accelerator, layer = Accelerator(cpu=True), torch.nn.Linear(4, 1)
    rows = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    model, optimizer, rows = accelerator.prepare(layer, optimizer, rows)
    for step, (batch,) in enumerate(rows):
        optimizer.zero_grad()
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
        if step % SAVE_EVERY == SAVE_EVERY - 1:
            accelerator.save_state(f"{directory}/{step}")


if __name__ == "__main__":
    jobs = {"lightning": lightning, "transformers": transformers, "accelerate": accelerate}
    jobs[sys.argv[1]](sys.argv[2])
