#!/usr/bin/env python3
"""What weft-plan --to writes, read by the programs that it is for.

    PYTHON scripts/check-doors.py [--bin BUILD/bin]

Plans of several kinds are written for each trainer, and parsed by its own code: the layout of stages
and the names of flags by megatron-core, the YAML by accelerate, the TOML by torchtitan (0.2, which has
the parser; of newer ones the names of fields), lists of layers by hetu-galvatron. Prints TAP; a trainer that is not installed is skipped.
"""
import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile

count = failed = 0
# Of megatron/training/arguments.py, which no package has; the other flags are fields of configurations.
BY_HAND = """group-query-attention seq-length max-position-embeddings vocab-size norm-epsilon
 make-vocab-size-divisible-by untie-embeddings-and-output-weights position-embedding-type rotary-base
 swiglu disable-bias-linear micro-batch-size global-batch-size num-layers-per-virtual-pipeline-stage
 decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers data-parallel-sharding-strategy
 use-megatron-fsdp accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16""".split()
QWEN = ["-m", "qwen3:8B", "-b", "64", "--dtype", "bf16"]
PLANS = {
    "data": ["--dp", "8", "--zero", "3"],
    "tensor": ["--tp", "4", "--sp", "--dp", "2", "--zero", "3"],
    "pipeline": ["--pp", "4", "--dp", "2", "--tp", "2", "--sp"],
    "uneven": ["--pp", "8"],
    "interleaved": ["--pp", "2", "--chunks", "3", "--recompute", "full"],
    "context": ["--cp", "2", "--ring", "--dp", "2", "--zero", "2"],
    "micro-batches": ["--tp", "2", "--dp", "4", "--zero", "1", "--micro-batch", "16"],
}


def ok(good, text):
    global count, failed
    count, failed = count + 1, failed + (not good)
    print(f"{'' if good else 'not '}ok {count} - {text}", flush=True)


def skip(text, why):
    global count
    count += 1
    print(f"ok {count} - {text} # SKIP {why}")


def written(target, args):
    """The text, or None where the trainer cannot say the plan."""
    made = subprocess.run([weft_plan, "-q", *QWEN, *args, "--to", target], capture_output=True, text=True)
    return made.stdout if made.returncode == 0 else None


def megatron():
    import dataclasses
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.core.transformer.transformer_config import TransformerConfig
    fields = {f.name for c in (TransformerConfig, OptimizerConfig, DistributedDataParallelConfig)
              for f in dataclasses.fields(c)}
    for name, args in PLANS.items():
        words = shlex.split(written("megatron", args) or "")
        flags = [w[2:] for w in words if w.startswith("--")]
        unknown = [f for f in flags if f not in BY_HAND and f.replace("-", "_") not in fields]
        if not words:
            skip(f"megatron-core: {name}", "the plan cannot be said")
            continue
        ok(not unknown, f"megatron-core: {name}: {len(flags)} flags are known {unknown}")
        if "pipeline-model-parallel-layout" in flags:
            text = words[words.index("--pipeline-model-parallel-layout") + 1]
            stages = PipelineParallelLayerLayout.parse_str_to_list(text)
            layers = sum(str(x).endswith("decoder") for s in stages for x in s)
            ok(layers == 36, f"megatron-core: {name}: {text}: {len(stages)} stages, {layers} layers")


def accelerate():
    from accelerate.commands.config.config_args import load_config_from_file
    for name, args in PLANS.items():
        text = written("accelerate", args)
        if text is None:
            skip(f"accelerate: {name}", "the plan cannot be said")
            continue
        path = os.path.join(folder, "accelerate.yaml")
        open(path, "w").write(text)
        read = load_config_from_file(path)
        degrees = read.parallelism_config
        ranks = 1
        for key in ("dp_replicate", "dp_shard", "tp"):
            ranks *= degrees[f"parallelism_config_{key}_size"]
        ok(ranks == read.num_processes == 8 or name == "context", f"accelerate: {name}: {degrees}")


def torchtitan():
    import dataclasses
    import tomllib
    try:
        from torchtitan.config import ConfigManager
        from torchtitan.config.job_config import JobConfig
    except ImportError:
        JobConfig = None
        from torchtitan.config.configs import ParallelismConfig, TrainingConfig
    for name, args in PLANS.items():
        text = written("torchtitan", args)
        if text is None:
            skip(f"torchtitan: {name}", "the plan cannot be said")
            continue
        path = os.path.join(folder, "titan.toml")
        open(path, "w").write(text)
        if JobConfig:
            p = ConfigManager(JobConfig).parse_args(["--job.config_file", path]).parallelism
            parts = p.module_fqns_per_model_part or []
            layers = sum(m.startswith("layers.") for part in parts for m in part)
            ok(layers in (0, 36), f"torchtitan: {name}: dp {p.data_parallel_replicate_degree} x "
               f"{p.data_parallel_shard_degree}, tp {p.tensor_parallel_degree}, "
               f"pp {p.pipeline_parallel_degree}, {len(parts)} parts")
        else:
            read = tomllib.loads(text)
            known = {f.name for c in (ParallelismConfig, TrainingConfig) for f in dataclasses.fields(c)}
            gone = set(re.findall(r"(?m)^# until .*\n(\w+) =", text))
            extra = (set(read["parallelism"]) | set(read["training"])) - known - gone
            ok(not extra and not gone & known,
               f"torchtitan: {name}: its fields are known {sorted(extra)}, but for {sorted(gone)}")


def deepspeed():
    import types
    from deepspeed.runtime import config  # needs no device, but asks how many ranks there are
    for name, args in PLANS.items():
        text = written("deepspeed", args)
        if text is None:
            skip(f"deepspeed: {name}", "the plan cannot be said")
            continue
        path = os.path.join(folder, "deepspeed.json")
        open(path, "w").write(text)
        tp = int(args[args.index("--tp") + 1]) if "--tp" in args else 1
        replicas = types.SimpleNamespace(get_data_parallel_world_size=lambda: 8 // tp)
        config.dist = types.SimpleNamespace(get_rank=lambda: 0)
        c = config.DeepSpeedConfig(path, mpu=replicas)
        ok(c.train_batch_size == 64 and f"{c.zero_config.stage}" == args[args.index("--zero") + 1],
           f"deepspeed: {name}: ZeRO {c.zero_config.stage}, {c.train_micro_batch_size_per_gpu} samples a rank and "
           f"micro-batch, {c.gradient_accumulation_steps} of them on {8 // tp} replicas, {c.train_batch_size} in all")


def galvatron():
    import importlib.util
    import json
    spec = importlib.util.find_spec("galvatron")  # importing it would need a GPU's libraries
    if not spec:
        raise ImportError("hetu-galvatron is not installed")
    path = os.path.join(list(spec.submodule_search_locations)[0], "utils", "config_utils.py")
    text = re.sub(r"(?m)^(import numpy|from (scipy|\.)).*", "", open(path).read())  # reading needs none of these
    reader = {}
    exec(compile(text, path, "exec"), reader)
    for name, args in PLANS.items():
        text = written("galvatron", args)
        if text is None:
            skip(f"galvatron: {name}", "the plan cannot be said")
            continue
        doc = json.loads(text)
        pp, tp, consecutive, types, sp, vtp, _ = reader["config2strategy"](doc)
        stages = reader["str2array"](doc["pp_division"])
        lists = [tp, consecutive, types, sp, reader["str2array"](doc["checkpoint"])]
        ok(len(stages) == pp and sum(stages) == 36 and all(len(x) == 36 for x in lists) and 8 // pp % vtp == 0,
           f"galvatron: {name}: {pp} stages {stages}, tp {tp[0]}, {doc['default_dp_type']}")


parser = argparse.ArgumentParser()
parser.add_argument("--bin", default="bin")
weft_plan = os.path.join(parser.parse_args().bin, "weft-plan")
with tempfile.TemporaryDirectory() as folder:
    for check in (megatron, accelerate, torchtitan, deepspeed, galvatron):
        try:
            check()
        except ImportError as e:
            skip(check.__name__, re.sub(r"\s+", " ", str(e)))
print(f"1..{count}")
sys.exit(failed > 0)
