#!/usr/bin/env python3
"""Accuracy in multiple choice, of questions in HellaSwag's format: lines of {"ctx", "endings", "label"}.

    scripts/multiple-choice.py --seq SEQ TOKENIZER QUESTIONS PLAN CHECKPOINT|FOLDER

Each ending is put behind its context and a blank, as in llm.c and nanoGPT, and becomes a sequence of SEQ
positions of which only the ending counts; weft-run --eval --each says what each is worth. The answer is the
ending whose tokens are the most likely: together ("accuracy"), or in the mean ("accuracy_norm", which is
what HellaSwag is reported by). PLAN is one of the model for one rank; its batch becomes 1. FOLDER holds
weights for --init. Prints a line of JSON for each question with --each, and one for all.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def fail(message):
    print(f"multiple-choice.py: error: {message}", file=sys.stderr)
    sys.exit(3)


def read_questions(path):
    questions = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                q = json.loads(line)
                ctx, endings, label = q["ctx"], q["endings"], int(q["label"])
            except (ValueError, KeyError, TypeError) as e:
                fail(f"{path}: line {number}: expected ctx, endings and label: {e!r}")
            if not (isinstance(ctx, str) and endings and all(isinstance(e, str) for e in endings)):
                fail(f"{path}: line {number}: expected texts")
            if not 0 <= label < len(endings):
                fail(f"{path}: line {number}: label {label} is none of {len(endings)} endings")
            questions.append((ctx, endings, label))
    return questions or fail(f"{path}: there is no question")


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **more)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def score(args, questions, folder):
    """For each ending of all questions the loss of a token in the mean, and how many it has."""
    lines = [json.dumps({"prompt": ctx, "answer": " " + e}) for ctx, endings, _ in questions for e in endings]
    data, plan = os.path.join(folder, "endings.m32"), os.path.join(folder, "plan.json")
    run([f"{args.bin}/weft-tokens", "--examples", str(args.seq), "-o", data, args.tokenizer],
        input="\n".join(lines))
    with open(args.plan) as f:
        doc = {**json.load(f), "batch": 1, "micro_batch": 1}
    with open(plan, "w") as f:
        json.dump(doc, f)
    steps = os.path.isdir(args.weights) and any("step-" in name for name in os.listdir(args.weights))
    begin = "--resume" if steps or os.path.exists(os.path.join(args.weights, "index.json")) else "--init"
    out = run([f"{args.bin}/weft-run", "-q", "--eval", "--each", "--data", data, "--valid-data", data,
               begin, args.weights, plan])
    each = [json.loads(line) for line in out.splitlines()]
    return [(e["valid_loss"], e["targets"]) for e in each if "batch" in e]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--bin", default=os.path.join(HERE, "bin"), help="folder of weft-run")
    p.add_argument("--seq", type=int, required=True, help="positions of the model's sequences")
    p.add_argument("--each", action="store_true", help="a line for each question, too")
    for name in ("tokenizer", "questions", "plan", "weights"):
        p.add_argument(name)
    args = p.parse_args()
    questions = read_questions(args.questions)
    with tempfile.TemporaryDirectory() as folder:
        scores = score(args, questions, folder)
    right, right_norm, at = 0, 0, 0
    for ctx, endings, label in questions:
        own = scores[at:at + len(endings)]
        at += len(endings)
        sums, means = [loss * n for loss, n in own], [loss for loss, _ in own]
        answer, norm = sums.index(min(sums)), means.index(min(means))
        right, right_norm = right + (answer == label), right_norm + (norm == label)
        if args.each:
            print(json.dumps({"answer": answer, "answer_norm": norm, "label": label, "losses": sums}))
    n = len(questions)
    print(json.dumps({"questions": n, "accuracy": right / n, "accuracy_norm": right_norm / n}))


if __name__ == "__main__":
    main()
