"""10b.6: the head that is best on some texts, and how good it is on the others."""

import torch

from course_utils.checks.exercise import Exercise


def honest_head(right, to_choose):
    kept = right[to_choose].float().mean(dim=0)  # (layers, H), to choose by
    held_out = right[~to_choose].float().mean(dim=0)  # (layers, H), to report
    layer, head = divmod(kept.argmax().item(), kept.shape[1])
    return torch.tensor([layer, head, held_out[layer, head].item()])  # (3,)


def by_lists(right, to_choose):
    right, n, H = right.float(), len(right), right.shape[2]
    chosen_by = [i for i in range(n) if to_choose[i]]
    others = [i for i in range(n) if not to_choose[i]]
    scores = [sum(right[i].flatten()[k] for i in chosen_by) for k in range(right[0].numel())]
    best = scores.index(max(scores))
    share = sum(float(right[i].flatten()[best]) for i in others) / len(others)
    return torch.tensor([best // H, best % H, share])


def inputs():
    rng = torch.Generator().manual_seed(106)

    def probe(n, layers, H, share):
        right = torch.rand(n, layers, H, generator=rng) < 0.5
        to_choose = torch.rand(n, generator=rng) < share
        to_choose[:2] = torch.tensor([True, False])
        return right, to_choose

    sizes = [(20, 30, 9, 0.5), (9, 4, 5, 0.6), (14, 3, 2, 0.3), (31, 6, 7, 0.7), (8, 1, 4, 0.5)]
    right, to_choose = probe(12, 5, 3, 0.5)
    return [*(probe(*size) for size in sizes), (right.mT.contiguous().mT, to_choose)]


HELD = "held_out = right[~to_choose]"
KEPT = "kept = right[to_choose]"
MISTAKES = [
    ("reported on what chose it",
     "the share is of the texts it was chosen by, which flatter it; report the others",
     (HELD, "held_out = right[to_choose]")),
    ("reported on all",
     "the share is of all texts; those it was chosen by flatter it, so leave them out",
     (HELD, "held_out = right")),
    ("chosen by all",
     "it is chosen by all texts, so that the others are no test any more", (KEPT, "kept = right")),
    ("chosen and reported on all",
     "one head is chosen by all texts and reported on all: choose by to_choose, report the others",
     (KEPT, "kept = right"), (HELD, "held_out = right")),
    ("in percent", "that is in percent; asked is the share, from 0 to 1",
     ("held_out[layer, head].item()", "100 * held_out[layer, head].item()")),
    ("chosen by the others",
     "it is chosen by the texts that should test it, which are no test then",
     (KEPT, "kept = right[~to_choose]")),
    ("halves exchanged", "the two sets are exchanged: to_choose says by which to choose",
     (KEPT, "kept = right[~to_choose]"), (HELD, "held_out = right[to_choose]")),
    ("best of the others",
     "the share is that of the others' own best head; report the head that was chosen",
     ("held_out[layer, head].item()", "held_out.max().item()")),
    ("first half", "the first texts are taken to choose by; to_choose says which",
     (KEPT, "kept = right[: int(to_choose.sum())]"),
     (HELD, "held_out = right[int(to_choose.sum()) :]")),
    ("worst head", "that is the head that is right least often", ("argmax", "argmin")),
    ("last of the best", "of several best heads the last is taken; asked is the first",
     ("kept.argmax().item()", "kept.numel() - 1 - kept.flatten().flip(0).argmax().item()")),
    ("ties by head first",
     "of several best heads the first by head is taken; asked is the first by layer, then by head",
     ("layer, head = divmod(kept.argmax().item(), kept.shape[1])",
      "head, layer = divmod(kept.T.argmax().item(), kept.shape[0])")),
    ("divided by layers",
     "the place in the flat table is divided by the number of layers; a row holds H heads",
     ("layer, head = divmod(kept.argmax().item(), kept.shape[1])",
      "layer, head = (int(each) % n for each, n in "
      "zip(divmod(kept.argmax().item(), kept.shape[0]), kept.shape))")),
    ("divided by all texts",
     "the right answers on the others are divided by all texts; divide by the number of the others",
     ("right[~to_choose].float().mean(dim=0)",
      "right[~to_choose].float().sum(dim=0) / len(right)")),
    ("share of wrong answers", "that is the share of wrong answers; asked is that of right ones",
     ("held_out[layer, head].item()", "1 - held_out[layer, head].item()")),
    ("counted from 1", "layer and head are counted from 1; the first is 0",
     ("[layer, head, held", "[layer + 1, head + 1, held")),
    ("head before layer", "first the head, then the layer: turn them round",
     ("[layer, head, held", "[head, layer, held")),
    ("counted", "the number of right answers; asked is their share",
     ("right[~to_choose].float().mean(dim=0)", "right[~to_choose].float().sum(dim=0)")),
    ("average of all heads", "the share is that of the average head, not of the one chosen",
     ("held_out[layer, head].item()", "held_out.mean().item()")),
]  # fmt: skip

exercise = Exercise("10b.6", honest_head, inputs, MISTAKES, also_right=[by_lists])
