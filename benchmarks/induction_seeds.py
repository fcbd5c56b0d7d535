"""Train lesson 07's induction model with several seeds: how reliably, how fast, how well.

Uses the model, data and training from the lesson's cells. Prints, for each seed, the accuracy on
repeated tokens, each layer's best scores, the step of the steepest drop of the loss, and the
seconds it took. With ``controls``, prints instead the accuracies of a one-layer model and of one
without positions, after the lesson's training and after each of ten more rounds.
Usage: .venv/bin/python benchmarks/induction_seeds.py [controls] [SEEDS [THREADS]]

One layer, seeds 0 to 4, on one CPU:
    after 400 steps    .160  .164  .169  .182  .169
    after 2,000 steps  .167  .183  .154  .266  .219
Without positions:
    after 400 steps    .215  .269  .257  .239  .246
    after 1,200 steps  .535  .517  .549  .551  .582
    after 2,000 steps  .721  .740  .717  .733  .732
    after 4,400 steps  .888  .923  .864  .868  .871
"""

import ast
import sys
import time
from pathlib import Path

import nbformat
import torch

LESSON = Path(__file__).parents[1] / "notebooks" / "07_attention_learns.ipynb"
DEFINES = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
CONSTANTS = {"V", "LENGTH", "STEPS", "SEEDS", "H", "D"}  # of lessons 07 and 09


def definitions(path, **scope):
    """Return what the cells of a notebook import and define, without running the rest.

    ``scope`` has what their definitions need of the rest.
    """
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            tree = ast.parse(cell.source)
            tree.body = [
                node for node in tree.body if isinstance(node, DEFINES) or _is_constant(node)
            ]
            exec(compile(tree, path.name, "exec"), scope)
    return scope


def _is_constant(node):
    if not isinstance(node, ast.Assign):
        return False
    return {
        each.id for each in ast.walk(node.targets[0]) if isinstance(each, ast.Name)
    } <= CONSTANTS


def main(seeds=10, threads=1):
    """Print a line for each seed, and a summary."""
    torch.set_num_threads(threads)
    lesson = definitions(LESSON)
    good, slowest = 0, 0.0
    for seed in range(seeds):
        torch.manual_seed(seed)
        model, losses = lesson["AttentionOnly"](num_layers=2), []
        start = time.perf_counter()
        lesson["fit"](model, lesson["draw_repeats"], lesson["STEPS"], losses.append)
        seconds = time.perf_counter() - start
        accuracy = lesson["repeated_accuracy"](model)
        before, after = lesson["head_scores"](model)
        smooth = torch.tensor(losses).unfold(0, 40, 1).mean(dim=-1)
        drop = int((smooth[:-40] - smooth[40:]).argmax()) + 40
        good += accuracy >= 0.95 and bool(after.max() >= 0.9)
        slowest = max(slowest, seconds)
        print(
            f"seed {seed}: accuracy {accuracy:.3f}; "
            f"previous-token {before[0].max():.2f}, induction {after[1].max():.2f}; "
            f"drop near step {drop}; {seconds:.1f} s",
            flush=True,
        )
    print(
        f"{good} of {seeds} seeds reach 95% and an induction score of 0.9; slowest {slowest:.1f} s"
    )


def controls(seeds=5, threads=1):
    """Print a line for each control and seed: the accuracies as training continues."""
    torch.set_num_threads(threads)
    lesson = definitions(LESSON)
    kinds = {"one layer": {"num_layers": 1}, "no positions": {"num_layers": 2, "positions": False}}
    for name, settings in kinds.items():
        for seed in range(seeds):
            torch.manual_seed(seed)
            model, right = lesson["AttentionOnly"](**settings), []
            for _ in range(11):
                lesson["fit"](model, lesson["draw_repeats"], lesson["STEPS"])
                right.append(f"{lesson['repeated_accuracy'](model):.3f}")
            print(f"{name}, seed {seed}, every {lesson['STEPS']} steps:", *right, flush=True)


if __name__ == "__main__":
    long = sys.argv[1:2] == ["controls"]
    (controls if long else main)(*map(int, sys.argv[1 + long :]))
