"""The models of 10b.7, built by hand: they predict which kind of bracket was opened last.

Tokens 0, 1 and 2 open brackets of three kinds, and all others are words. One head of layer 0 writes
the kind of each token into the stream. The heads of layer 1 attend to some position and add the
kind that they find there to the answer.
"""

import torch
import torch.nn.functional as F

KINDS = 3
HEADS = {  # by name: where it attends, how strongly, how much it adds to the answer
    "finder": ("last", 4.5, 1.0),
    "mirror": ("last", 9.0, 0.04),  # attends to the bracket, but adds almost nothing
    "first": ("first", 9.0, 0.3),
    "back": ("before", 9.0, 0.0),
    "idle": ("nowhere", 0.0, 0.1),
    "zeros": ("last, a 0", 9.0, 1.0),  # this head and the next share the finder's work
    "others": ("last, no 0", 4.5, 1.0),
}
ONE = ["finder", "mirror", "first", "back", "idle"]
TWO = ["zeros", "others", "mirror", "back", "idle"]


def last_opener(tokens):
    """Return the position of the last opener up to each token (B, L), -1 if there is none."""
    opens = torch.where(tokens < KINDS, torch.arange(tokens.shape[-1]), -1)  # (B, L)
    return opens.cummax(dim=-1).values


def brackets(seed, shared=False, V=12):
    """Return a model, texts to choose a head on (B, L), and texts to test it on (B, L).

    If ``shared``, two heads find brackets, and one of them finds only those of kind 0. This head
    has the highest bracket weight on the texts to choose on, where kind 0 is frequent. On the
    texts to test on, the other head has.

    ``model(tokens, removed=[])`` returns logits (B, L, 3), for the kind of the last opener up to
    each token, and weights (layers, B, H, L, L). The heads (layer, head) in ``removed``, both
    counted from 0, add nothing.
    """
    rng = torch.Generator().manual_seed(seed)
    above = [(TWO if shared else ONE)[i] for i in torch.randperm(5, generator=rng)]
    guess = 0.15 if shared else 0.01  # without a bracket, the answer is kind 2
    root = int(torch.randint(5, (1,), generator=rng))  # the head of layer 0 that writes kinds
    noise = torch.randn(2, 5, 40, 40, generator=rng)

    def model(tokens, removed=()):
        removed, (B, L) = {tuple(head) for head in removed}, tokens.shape
        at = torch.arange(L)
        opens = tokens < KINDS
        kind = F.one_hot(torch.where(opens, tokens, KINDS), KINDS + 1)[..., :KINDS].float()
        kind = kind * ((0, root) not in removed)  # (B, L, KINDS)
        first = torch.where(opens.any(-1), opens.int().argmax(-1), -1)[:, None].expand(B, L)
        last = last_opener(tokens)  # (B, L)
        zero = tokens.gather(1, last.clamp(min=0)) == 0  # (B, L)
        targets = {"last": last, "first": first, "itself": at.expand(B, L)}
        targets |= {"last, a 0": last.where(zero, -1), "last, no 0": last.where(~zero, -1)}
        targets |= {"before": (at - 1).expand(B, L), "nowhere": torch.full((B, L), -1)}
        answer, seen = guess * torch.arange(KINDS).expand(B, L, KINDS), []
        below = ["itself" if h == root else "nowhere" for h in range(5)]
        roles = [[(name, 9.0, 0.0) for name in below], [HEADS[name] for name in above]]
        for layer, heads in enumerate(roles):
            weights = []
            for h, (where, strength, amount) in enumerate(heads):
                aim = F.one_hot(targets[where] + 1, L + 1)[..., 1:]  # (B, L, L), none for -1
                scores = noise[layer, h, :L, :L] + strength * aim
                scores = scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf)
                weights.append(scores.softmax(dim=-1))
                if (layer, h) not in removed:
                    answer = answer + amount * weights[-1] @ kind
            seen.append(torch.stack(weights, dim=1))  # (B, H, L, L)
        return answer, torch.stack(seen)

    to_choose = torch.randint(KINDS, V, (20, 16), generator=rng)
    for start in (0, 8):  # one opener in each half
        at = start + torch.randint(8, (20, 1), generator=rng)
        kinds = torch.randint(KINDS, (20, 1), generator=rng)
        often = shared & (torch.rand(20, 1, generator=rng) < 0.5)  # then it is kind 0
        to_choose.scatter_(1, at, kinds.masked_fill(often, 0))
    held_out = torch.randint(V, (20, 24), generator=rng)  # with more openers
    held_out[0] = held_out[0].clamp(min=KINDS)  # and one text without any
    return model, to_choose, held_out
