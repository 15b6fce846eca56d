"""Two ranks train with somebody else's loop; usage: trainers.py WAY SLOW_RANK compute|data.

WAY is one of `WAYS`. The slow rank, -1 for none, takes longer in the model's forward or in fetching
its batches. The loops set up the process group themselves, as they do under torchrun.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from ending import end_in_time, settle
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 48
BATCH = 4
ACCUMULATED = 2  # micro-batches a step where the loop accumulates gradients
BASE_SECONDS = 0.01
SLOW_SECONDS = 0.05
TOKENS = 64
LENGTH = 16


def delay(where: str, share: float = 1.0) -> None:
    slow = os.environ.get("RANK") == sys.argv[2] and sys.argv[3] == where
    time.sleep(share * (BASE_SECONDS + SLOW_SECONDS * slow))


class Texts(Dataset[dict[str, torch.Tensor]]):
    """Sentences of random words; fetching the last of a batch takes the batch's time."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share

    def __len__(self) -> int:
        return 8 * STEPS * BATCH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        delay("data", self.share / BATCH)
        words = torch.randint(TOKENS, (LENGTH,))
        return {"input_ids": words, "labels": words}


def language_model(share: float = 1.0) -> nn.Module:
    """Give a small GPT-2 with random weights, whose forward takes its time."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=TOKENS,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.register_forward_pre_hook(lambda *_: delay("compute", share))
    return model


def hf_trainer() -> None:
    """Train with transformers' Trainer, two micro-batches a step, evaluated and saved once."""
    from transformers import Trainer, TrainingArguments

    share = 1 / ACCUMULATED
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=ACCUMULATED,
            use_cpu=True,
            logging_steps=10,
            save_steps=STEPS // 2,
            report_to=[],
            disable_tqdm=True,
        )
        Trainer(language_model(share), arguments, train_dataset=Texts(share)).train()
        dist.barrier()  # before the folder goes


def accelerate() -> None:
    """Train with accelerate, which wraps model, optimizer and loader of one's own loop."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    share = 1 / ACCUMULATED
    model = language_model(share)
    optimizer = torch.optim.AdamW(model.parameters())
    texts = DataLoader(Texts(share), batch_size=BATCH, shuffle=True)
    model, optimizer, texts = accelerator.prepare(model, optimizer, texts)
    for number, batch in enumerate(texts, start=1):
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()
        if number == STEPS * ACCUMULATED:
            break
    settle()
    accelerator.end_training()


def lightning() -> None:
    """Train with Lightning, which runs forward and backward inside the optimizer's step."""
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = language_model()

        def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = self.model(**batch).loss
            return loss

        def validation_step(self, batch: dict[str, torch.Tensor]) -> None:
            self.model(**batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    texts = DataLoader(Texts(), batch_size=BATCH)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            accelerator="cpu",
            strategy="ddp",
            devices=int(os.environ["WORLD_SIZE"]),
            max_steps=STEPS,
            val_check_interval=STEPS // 2,
            limit_val_batches=2,
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), texts, texts)


WAYS = {way.__name__: way for way in (hf_trainer, accelerate, lightning)}

if __name__ == "__main__":
    end_in_time()
    WAYS[sys.argv[1]]()
    if dist.is_initialized():
        settle()
        dist.destroy_process_group()
