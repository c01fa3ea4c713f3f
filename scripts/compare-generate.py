#!/usr/bin/env python3
"""What weft-sample writes is what Hugging Face's transformers generates, token for token, as probable.

    PYTHON=... ; $PYTHON scripts/compare-generate.py [--bin BUILD/bin] [--prompts N] [CASE...]

Needs PyTorch, transformers and numpy; neither is needed for anything else, and nothing is
downloaded: the models have random weights. Each case makes a small model with transformers, of a
configuration of scripts/compare-transformers.py, and saves it. weft-sample reads the folder and
writes greedily behind some prompts of different lengths, all at once; transformers' generate does
the same one prompt after the other. Sequences go up to the model's last position.

The tokens' logarithms of probabilities are compared with those that transformers has of the whole
sequence at once, in fp64. Models that write nothing, such as BERT, are passed over.

Prints per case how many tokens are equal, and the largest difference of a logarithm over the largest logit,
beside that of PyTorch's own fp32. Ends with status 1 if a token is another, or if weft's difference is beyond
1e-5 and three times PyTorch's.
"""
import copy
import importlib.util
import json
import os
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
import transformers

spec = importlib.util.spec_from_file_location(
    "compare", os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare-transformers.py"))
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)


LIMIT = 1e-5


def generate(model, prompt, new):
    """The tokens behind the prompt, greedily; of an encoder's model those behind its first."""
    ids = torch.tensor([prompt])
    given = 1 if model.config.is_encoder_decoder else len(prompt)
    # transformers 5.24 makes its cache for as many decoder layers as the encoder has.
    caches = not model.config.is_encoder_decoder
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
                         max_new_tokens=new, pad_token_id=0, use_cache=caches)
    return out[0].tolist(), given


def logprobs(model, prompt, sequence, given):
    """Of the tokens behind the given ones, and the largest logit."""
    ids = torch.tensor([sequence[:-1]])
    given_to = dict(input_ids=torch.tensor([prompt]), decoder_input_ids=ids) if model.config.is_encoder_decoder \
        else dict(input_ids=ids)
    with torch.no_grad():
        logits = model(**given_to).logits[0, given - 1:].double()
    chosen = torch.tensor(sequence[given:])
    return torch.log_softmax(logits, -1).gather(1, chosen[:, None])[:, 0], logits.abs().max().item()


def sample(bin, folder, prompts, new, stop):
    command = [f"{bin}/weft-sample", "-q", "--ids", "--json", "--temperature", "0", "-n", str(new)]
    command += ["--stop", str(stop)] if stop is not None else []
    done = subprocess.run(command + [folder], capture_output=True, text=True,
                          input="".join(" ".join(map(str, p)) + "\n" for p in prompts))
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(name, case, bin, folder, n):
    sizes, rng = case["sizes"], np.random.default_rng(5)
    torch.manual_seed(2)
    model = case["make"](sizes).eval()
    if not model.can_generate():
        print(f"{name}: writes nothing")
        return True
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3 if p.dim() > 1 else 0.6)
    encodes = model.config.is_encoder_decoder
    stop = model.config.eos_token_id if encodes else None
    model.generation_config.eos_token_id = stop
    model.generation_config.forced_eos_token_id = None  # BART's last token, whatever its logits say
    if encodes and model.generation_config.decoder_start_token_id is None:
        model.generation_config.decoder_start_token_id = 0
    model.save_pretrained(folder)
    seq = sizes.get("seq", sizes.get("positions"))
    longest = seq if encodes else seq * 3 // 4
    prompts = [rng.integers(2, sizes["vocab"], rng.integers(1, longest + 1)).tolist()
               for _ in range(n)]
    new = sizes.get("target_seq", seq) if encodes else seq - max(map(len, prompts))
    ours = sample(bin, folder, prompts, new, stop)
    exact = copy.deepcopy(model).double()
    exact.set_experts_implementation("eager")  # PyTorch's grouped products are not there in fp64
    wrong = total = kinds = off = off_theirs = 0
    for prompt, mine in zip(prompts, ours):
        theirs, given = generate(model, prompt, new)
        if stop is not None and stop in theirs[given:]:
            theirs = theirs[:theirs.index(stop, given)]
        total += len(theirs) - given
        kinds += len(set(theirs[given:]))
        if mine["tokens"] != theirs[given:]:
            wrong += 1
            print(f"{name}: behind {prompt}: {mine['tokens']}, transformers {theirs[given:]}")
        elif len(theirs) > given:
            logs, largest = logprobs(exact, prompt, theirs, given)
            off = max(off, (logs - torch.tensor(mine["logprobs"])).abs().max().item() / largest)
            off_theirs = max(off_theirs, (logs - logprobs(model, prompt, theirs, given)[0]).abs().max().item() / largest)
    wrong += len(ours) != len(prompts) or off > max(LIMIT, 3 * off_theirs)
    print(f"{name}: {total} tokens behind {n} prompts, {kinds} kinds, logarithms within {off:.1e} (PyTorch's {off_theirs:.1e}): "
          f"{'equal' if not wrong else 'DIFFERENT'}")
    return not wrong


if __name__ == "__main__":
    sys.exit(cases.run_cases(__doc__, cases.CASES, compare, prompts=8))
