"""Writes checkpoints of every kind that is explained, with the libraries that write them.

Run as a program, as training does it: two processes that it forks save one sharded state together.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

RANKS = 2


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.Linear(128, 8))


def state(step: int) -> dict[str, object]:
    network = model()
    optimizer = torch.optim.AdamW(network.parameters())
    network(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return {
        "model": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "lr_scheduler": scheduler.state_dict(),
        "step": step,
        "rng_state": torch.get_rng_state(),
    }


def sharded_rank(rank: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    sharded = {
        f"model.layers.{layer}.weight": distribute_tensor(torch.randn(64, 32), mesh, [Shard(0)])
        for layer in range(4)
    }
    whole = {**sharded, "optimizer.lr": 0.1, "step": 7, "dataloader": {"seen": [1, 2, 3]}}
    for step in (10, 20):
        dcp.save(whole, checkpoint_id=f"{folder}/dcp/step_{step}")
    dcp.async_save(whole, checkpoint_id=f"{folder}/dcp/step_30").result()
    dist.destroy_process_group()


def plain(folder: Path) -> None:
    for step in (100, 200):
        torch.save(state(step), folder / "plain" / f"ckpt_{step}.pt")
    torch.save(
        model().state_dict(), folder / "old" / "weights.pth", _use_new_zipfile_serialization=False
    )
    torch.save(model(), folder / "whole" / "module.pt")


def ranks(folder: Path) -> None:
    """Save as scripts do in which every rank writes its part."""
    for step in (10, 20):
        for rank in range(4):
            target = folder / "ranks" / f"ckpt_step{step}_rank{rank}.pt"
            torch.save(state(step) | {"rank": rank}, target)


def deepspeed(folder: Path) -> None:
    """Save as DeepSpeed's engine names and fills its files (runtime/engine.py)."""
    base = folder / "deepspeed" / "global_step40"
    base.mkdir()
    counts = {"dp_world_size": 2, "mp_world_size": 1}
    held = {"module": model().state_dict(), "global_steps": 40, "optimizer": None, **counts}
    torch.save(held, base / "mp_rank_00_model_states.pt")
    for rank in range(2):
        name = f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        torch.save({"optimizer_state_dict": {"zero_stage": 1, "flat": torch.ones(99)}}, base / name)
    (base.parent / "latest").write_text("global_step40")


def megatron(folder: Path) -> None:
    """Save as Megatron-LM names and fills its files (training/checkpointing.py)."""
    arguments = argparse.Namespace(
        tensor_model_parallel_size=2, pipeline_model_parallel_size=2, consumed_train_samples=640
    )
    base = folder / "megatron" / "iter_0000500"
    for tensor in range(2):
        for stage in range(2):
            inner = base / f"mp_rank_{tensor:02d}_{stage:03d}"
            inner.mkdir(parents=True)
            held = {
                "args": arguments,
                "iteration": 500,
                "model": model().state_dict(),
                "optimizer": {"param_groups": []},
                "rng_state": [torch.get_rng_state()],
            }
            torch.save(held, inner / "model_optim_rng.pt")
    (base.parent / "latest_checkpointed_iteration.txt").write_text("500")


def safetensors(folder: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    small = GPT2Config(vocab_size=300, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    network = GPT2LMHeadModel(small)
    network.save_pretrained(folder / "safetensors" / "gpt2", max_shard_size="60KB")


def lightning(folder: Path) -> None:
    import lightning

    class Small(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def training_step(self, batch, _):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    saver = lightning.pytorch.callbacks.ModelCheckpoint(
        folder / "lightning", every_n_train_steps=2, save_top_k=-1, save_last="link"
    )
    trainer = lightning.Trainer(
        max_steps=4,
        accelerator="cpu",
        logger=False,
        callbacks=[saver],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Small(), torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=2))


def huggingface(folder: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    small = GPT2Config(vocab_size=300, n_positions=32, n_embd=32, n_layer=1, n_head=2)
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(16)]
    arguments = TrainingArguments(
        str(folder / "huggingface"),
        max_steps=4,
        save_steps=2,
        use_cpu=True,
        report_to=[],
        per_device_train_batch_size=2,
        disable_tqdm=True,
        hub_token="hf_" + "a1B2" * 9,
    )
    Trainer(GPT2LMHeadModel(small), arguments, train_dataset=rows).train()


def accelerate(folder: Path) -> None:
    """Save as accelerate does, and as diffusers' scripts have it write: by a hook for the model."""
    from accelerate import Accelerator
    from safetensors.torch import save_file

    def save_apart(models, weights, target: str) -> None:
        (Path(target) / "unet").mkdir()
        save_file(weights.pop(), Path(target) / "unet" / "diffusion_pytorch_model.safetensors")

    def save_adapter(models, weights, target: str) -> None:
        save_file(weights.pop(), Path(target) / "pytorch_lora_weights.safetensors")

    accelerator = Accelerator(cpu=True)
    network = model()
    optimizer = torch.optim.AdamW(network.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    accelerator.prepare(network, optimizer, scheduler)
    for step, save in ((500, None), (1000, save_apart), (1500, save_adapter)):
        handle = None if save is None else accelerator.register_save_state_pre_hook(save)
        accelerator.save_state(str(folder / "accelerate" / f"checkpoint-{step}"))
        if handle is not None:
            handle.remove()


def main() -> None:
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    for kind in ("plain", "old", "whole", "ranks", "deepspeed", "megatron", "safetensors"):
        (folder / kind).mkdir()
    mp.start_processes(sharded_rank, (str(folder),), nprocs=RANKS, start_method="fork")
    for write in (
        plain,
        ranks,
        deepspeed,
        megatron,
        safetensors,
        lightning,
        huggingface,
        accelerate,
    ):
        write(folder)


if __name__ == "__main__":
    main()
