"""10b.6: the head that is best on some texts, and how good it is on the others."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.shared_hints import COUNTED_FROM_1


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
SECOND = "Your head is the second best one. Choose the best one."
ANY_OF_TIES = (
    "If several heads tie, yours is not always the first of them. You get this result if you sort, "
    "or use topk. Use argmax, or a sort with `descending=True, stable=True`."
)
ARGMAX = "kept.argmax().item()"
CHOICE = "layer, head = divmod(kept.argmax().item(), kept.shape[1])"
MISTAKES = [
    ("second best",
     SECOND,
     (ARGMAX, "kept.flatten().argsort(descending=True, stable=True)[1].item()")),
    ("second best, by topk", SECOND, (ARGMAX, "kept.flatten().topk(2).indices[1].item()")),
    ("second best, by the last of a sort", SECOND, (ARGMAX, "kept.flatten().argsort()[-2].item()")),
    ("ties by sort", ANY_OF_TIES, (ARGMAX, "kept.flatten().argsort(descending=True)[0].item()")),
    ("ties by topk", ANY_OF_TIES, (ARGMAX, "kept.flatten().topk(1).indices[0].item()")),
    ("ties by the last of a sort", ANY_OF_TIES, (ARGMAX, "kept.flatten().argsort()[-1].item()")),
    ("ties by the other texts",
     "If several heads tie, your head is the one that is best on the other texts. These are meant "
     "to test the head, so take the first head in the lowest layer instead.",
     (ARGMAX, "(kept + held_out / 1000).argmax().item()")),
    ("ties by the highest number",
     "If several heads tie, you take the lowest layer, but the highest number in it. Take the "
     "lowest number.",
     (CHOICE, "layer = kept.amax(dim=1).argmax().item()\n"
      "    head = kept.shape[1] - 1 - kept[layer].flip(0).argmax().item()")),
    ("layer and head apart",
     "If several heads tie, your layer and your head number may come from different heads. First "
     "take the lowest layer that has one of the tied heads, and then the lowest number among the "
     "tied heads of that layer.",
     (CHOICE, "layer, head = kept.amax(1).argmax().item(), kept.amax(0).argmax().item()")),
    ("nine heads",
     "Your layer and head are right only with 9 heads in a layer. Divide the index by H, which is "
     "the last dimension of `right`.",
     ("(kept.argmax().item(), kept.shape[1])", "(kept.argmax().item(), 9)"),
     ("held_out[layer, head].item()", "held_out.flatten()[kept.argmax()].item()")),
    ("thirty heads",
     "Your layer and head are what you get if you divide the index by 30. Each layer has H heads, "
     "so divide by H, the last dimension of `right`.",
     ("(kept.argmax().item(), kept.shape[1])", "(kept.argmax().item(), 30)"),
     ("held_out[layer, head].item()", "held_out.flatten()[kept.argmax()].item()")),
    ("mask as indices, to choose",
     "You choose the head on texts 0 and 1 only. This happens if `to_choose` is used as indices. "
     "Keep it as a Boolean mask: right[to_choose].",
     (KEPT, "kept = right[to_choose.long()]")),
    ("difference of the shares",
     "Your last entry is the share on the other texts minus the share on the texts that the head "
     "was chosen on. Return the share on the other texts alone.",
     ("held_out[layer, head].item()", "(held_out - kept)[layer, head].item()")),
    ("mean of both shares",
     "Your share is the mean of two shares, one of them from the texts that the head was chosen on."
     " Return the share on the other texts alone.",
     ("held_out[layer, head].item()", "((held_out + kept) / 2)[layer, head].item()")),
    ("divided by the chosen texts",
     "Your number of right answers on the other texts is divided by the number of texts that "
     "`to_choose` marks. Divide it by the number of the other texts.",
     ("right[~to_choose].float().mean(dim=0)",
      "right[~to_choose].float().sum(dim=0) / to_choose.sum()")),
    ("average of the layer",
     "Your share is the average over the heads of the layer. Report the share of the head that you "
     "chose.",
     ("held_out[layer, head].item()", "held_out[layer].mean().item()")),
    ("rounded",
     "Your share is rounded to two decimal places. Return it without rounding.",
     ("held_out[layer, head].item()", "round(held_out[layer, head].item(), 2)")),
    ("right on any",
     "Your head is the first one that is right on at least one text that `to_choose` marks. Choose "
     "the one that is right most often.",
     (KEPT + ".float().mean(dim=0)", KEPT + ".float().amax(dim=0)")),
    ("larger part",
     "Your head is chosen on the larger set of texts and tested on the smaller one. Choose it on "
     "the texts that `to_choose` marks, even if they are fewer, and test it on the others.",
     (KEPT, "to_choose = to_choose if to_choose.float().mean() > 0.5 else ~to_choose\n"
      "    " + KEPT)),
    ("reported on what chose it",
     "Your share comes from the texts that the head was chosen on. The head looks better on these"
     " than elsewhere, so report its share on the other texts.",
     (HELD, "held_out = right[to_choose]")),
    ("reported on all",
     "Your share comes from all texts. The head looks better on the texts that it was chosen on, "
     "so report its share on the other texts only.",
     (HELD, "held_out = right")),
    ("chosen by all",
     "Your head is the best one on all texts together, so the other texts are no longer a fair "
     "test. Choose it only on the texts that `to_choose` marks.",
     (KEPT, "kept = right")),
    ("chosen and reported on all",
     "Your head and its share both come from all texts. Choose the head on the texts that "
     "`to_choose` marks, and report its share on the others.",
     (KEPT, "kept = right"), (HELD, "held_out = right")),
    ("in percent",
     "Your share is in percent. Return a number from 0 to 1.",
     ("held_out[layer, head].item()", "100 * held_out[layer, head].item()")),
    ("chosen by the others",
     "Your head is the best one on the very texts that are meant to test it. Choose it on the "
     "texts that `to_choose` marks.",
     (KEPT, "kept = right[~to_choose]")),
    ("halves exchanged",
     "Your two sets of texts are swapped. Choose on the texts that `to_choose` marks, and report "
     "the share on the others.",
     (KEPT, "kept = right[~to_choose]"), (HELD, "held_out = right[to_choose]")),
    ("best of the others",
     "Your share is that of the head that is best on the other texts. Report the share of the "
     "head that you chose.",
     ("held_out[layer, head].item()", "held_out.max().item()")),
    ("first half",
     "Your head is chosen on the first texts and tested on the last ones. Choose it on the texts "
     "that `to_choose` marks, wherever they are, and test it on the others.",
     (KEPT, "kept = right[: int(to_choose.sum())]"),
     (HELD, "held_out = right[int(to_choose.sum()) :]")),
    ("half of all texts",
     "Your head is chosen on the first half of the texts. Choose it on the texts that "
     "`to_choose` marks, wherever they are, and test it on the others.",
     (KEPT, "kept = right[: len(right) // 2]"), (HELD, "held_out = right[len(right) // 2 :]")),
    ("mask as indices",
     "Your result uses `to_choose` as indices, so it takes only texts 0 and 1. Keep it as a "
     "Boolean mask: right[to_choose], and right[~to_choose] for the others.",
     (KEPT, "kept = right[to_choose.long()]"), (HELD, "held_out = right[(~to_choose).long()]")),
    ("best layer first",
     "Your head is the best one in the layer with the best average. Choose among the heads of "
     "all layers at once.",
     ("layer, head = divmod(kept.argmax().item(), kept.shape[1])",
      "layer = kept.mean(dim=1).argmax().item()\n    head = kept[layer].argmax().item()")),
    ("worst head",
     "Your head is the one that is right least often. Choose the one that is right most often.",
     ("argmax", "argmin")),
    ("last of the best",
     "If several heads tie, your head is the last of them. Take the one in the lowest layer and, "
     "within that layer, the one with the lowest number.",
     ("kept.argmax().item()", "kept.numel() - 1 - kept.flatten().flip(0).argmax().item()")),
    ("ties by head first",
     "If several heads tie, your head is the one with the lowest number, whatever its layer. Take"
     " the lowest layer first, and then the lowest number in it.",
     ("layer, head = divmod(kept.argmax().item(), kept.shape[1])",
      "head, layer = divmod(kept.T.argmax().item(), kept.shape[0])")),
    ("divided by layers",
     "Your layer and head are what you get if you divide the index by the number of layers. Each "
     "layer has H heads, so divide by H.",
     ("layer, head = divmod(kept.argmax().item(), kept.shape[1])",
      "layer, head = (int(each) % n for each, n in "
      "zip(divmod(kept.argmax().item(), kept.shape[0]), kept.shape))")),
    ("divided by all texts",
     "Your number of right answers on the other texts is divided by the number of *all* texts. "
     "Divide it by the number of the other texts.",
     ("right[~to_choose].float().mean(dim=0)",
      "right[~to_choose].float().sum(dim=0) / len(right)")),
    ("share of wrong answers",
     "Your share is that of the wrong answers. Return the share of the right ones.",
     ("held_out[layer, head].item()", "1 - held_out[layer, head].item()")),
    ("counted from 1",
     COUNTED_FROM_1,
     ("[layer, head, held", "[layer + 1, head + 1, held")),
    ("layer counted from 1", COUNTED_FROM_1, ("[layer, head, held", "[layer + 1, head, held")),
    ("head counted from 1", COUNTED_FROM_1, ("[layer, head, held", "[layer, head + 1, held")),
    ("head before layer",
     "Your head comes before its layer. Return the layer first.",
     ("[layer, head, held", "[head, layer, held")),
    ("counted",
     "Your last entry is the number of right answers. Divide it by the number of the other texts.",
     ("right[~to_choose].float().mean(dim=0)", "right[~to_choose].float().sum(dim=0)")),
    ("average of all heads",
     "Your share is the average over all heads. Report the share of the head that you chose.",
     ("held_out[layer, head].item()", "held_out.mean().item()")),
]  # fmt: skip

exercise = Exercise("10b.6", honest_head, inputs, MISTAKES, also_right=[by_lists])
