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
     "Your share comes from the texts that chose the head, which flatter it. Report its share on "
     "the other texts.",
     (HELD, "held_out = right[to_choose]")),
    ("reported on all",
     "Your share comes from all texts. Those that chose the head flatter it, so leave them out.",
     (HELD, "held_out = right")),
    ("chosen by all",
     "Your head is chosen on all texts, so the other texts are no test any more. Choose it only "
     "on the texts that to_choose marks.",
     (KEPT, "kept = right")),
    ("chosen and reported on all",
     "Your head is chosen on all texts and reported on all. Choose it on the texts that to_choose "
     "marks, and report the others.",
     (KEPT, "kept = right"), (HELD, "held_out = right")),
    ("in percent",
     "Your share is in percent. Return a number from 0 to 1.",
     ("held_out[layer, head].item()", "100 * held_out[layer, head].item()")),
    ("chosen by the others",
     "Your head is chosen on the same texts that should test it. Choose it on the texts that "
     "to_choose marks.",
     (KEPT, "kept = right[~to_choose]")),
    ("halves exchanged",
     "Your two sets of texts are swapped. Choose on the texts that to_choose marks, and report "
     "the others.",
     (KEPT, "kept = right[~to_choose]"), (HELD, "held_out = right[to_choose]")),
    ("best of the others",
     "Your share is that of the best head on the other texts. Report the share of the head that "
     "you chose.",
     ("held_out[layer, head].item()", "held_out.max().item()")),
    ("first half",
     "Your head is chosen on the first texts. Choose it on the texts that to_choose marks.",
     (KEPT, "kept = right[: int(to_choose.sum())]"),
     (HELD, "held_out = right[int(to_choose.sum()) :]")),
    ("worst head",
     "Your head is the one that is right least often. Choose the one that is right most often.",
     ("argmax", "argmin")),
    ("last of the best",
     "If several heads are best, yours is the last of them. Return the first.",
     ("kept.argmax().item()", "kept.numel() - 1 - kept.flatten().flip(0).argmax().item()")),
    ("ties by head first",
     "If several heads are best, yours is the one with the smallest head number. Return the one "
     "in the lowest layer, then the lowest head.",
     ("layer, head = divmod(kept.argmax().item(), kept.shape[1])",
      "head, layer = divmod(kept.T.argmax().item(), kept.shape[0])")),
    ("divided by layers",
     "Your layer and head come from dividing by the number of layers. Each row of the flattened "
     "table has H entries, so divide by H.",
     ("layer, head = divmod(kept.argmax().item(), kept.shape[1])",
      "layer, head = (int(each) % n for each, n in "
      "zip(divmod(kept.argmax().item(), kept.shape[0]), kept.shape))")),
    ("divided by all texts",
     "Your count of right answers on the other texts is divided by the number of all texts. "
     "Divide it by the number of the others.",
     ("right[~to_choose].float().mean(dim=0)",
      "right[~to_choose].float().sum(dim=0) / len(right)")),
    ("share of wrong answers",
     "Your share is that of the wrong answers. Return the share of the right ones.",
     ("held_out[layer, head].item()", "1 - held_out[layer, head].item()")),
    ("counted from 1",
     "Your layer and head are counted from 1. Count them from 0.",
     ("[layer, head, held", "[layer + 1, head + 1, held")),
    ("head before layer",
     "Your head comes before its layer. Return the layer first.",
     ("[layer, head, held", "[head, layer, held")),
    ("counted",
     "Your last entry is the number of right answers. Return their share.",
     ("right[~to_choose].float().mean(dim=0)", "right[~to_choose].float().sum(dim=0)")),
    ("average of all heads",
     "Your share is the average over all heads. Report the share of the head that you chose.",
     ("held_out[layer, head].item()", "held_out.mean().item()")),
]  # fmt: skip

exercise = Exercise("10b.6", honest_head, inputs, MISTAKES, also_right=[by_lists])
