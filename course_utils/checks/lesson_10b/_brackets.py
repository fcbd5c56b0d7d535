"""The models of 10b.7, built by hand: they predict which kind of bracket was opened last.

Tokens 0, 1 and 2 open brackets of three kinds, and all others are words. One head of layer 0 writes
the kind of each token into the stream. The heads of layer 1 attend to some position and add the
kind that they find there to the answer.
"""

import functools

import torch
import torch.nn.functional as F

KINDS = 3
HEADS = {  # by name: where it attends, how strongly, how much it adds (of each kind)
    "finder": ("last", 4.5, 1.0),
    "mirror": ("last", 9.0, 0.04),  # attends to the bracket, but adds almost nothing
    "first": ("first", 9.0, 0.3),
    "back": ("before", 9.0, 0.0),
    "idle": ("nowhere", 0.0, 0.1),
    "writer": ("itself", 9.0, 0.0),
    "nothing": ("nowhere", 9.0, 0.0),
    "zeros": ("last, a 0", 9.0, 1.0),  # this head and the next share the finder's work
    "others": ("last, no 0", 4.5, 1.0),
    "adds 0": ("last", 9.0, (1.0, 0.0, 0.0)),
    "adds 1, 2": ("last", 4.5, (0.0, 1.0, 1.0)),
    "weak 1, 2": ("last", 2.5, (0.0, 1.5, 1.5)),  # with a bracket weight below a half
    "booster": ("last", 9.0, (0.0, 0.0, 3.0)),  # changes the logits, but hardly an answer
    "spoiler": ("last", 9.0, (0.0, 0.0, -2.0)),  # without it, the model is better
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
    guess = 0.15 if shared else 0.01  # without a bracket, the answer is kind 2
    return build(seed, TWO if shared else ONE, guess, 0.5 if shared else 0.0, V=V)


def build(seed, heads, guess=0.15, often=0.0, rare=0.0, below="nothing", V=12):
    """Return what `brackets` does, for the names of the five heads of layer 1.

    On the texts to choose on, an opener becomes kind 0 with probability ``often``, and an opener of
    kind 0 becomes kind 1 with probability ``rare``. ``below`` names a second head of layer 0.
    """
    rng = torch.Generator().manual_seed(seed)
    above = [heads[i] for i in torch.randperm(5, generator=rng)]
    root = int(torch.randint(5, (1,), generator=rng))  # the head of layer 0 that writes kinds
    noise = torch.randn(2, 5, 40, 40, generator=rng)

    lowest = [HEADS["nothing"]] * 5
    lowest[root] = HEADS["writer"]
    lowest[root - 1] = HEADS[below]
    roles = [lowest, [HEADS[name] for name in above]]

    @functools.lru_cache(maxsize=4)
    def attend(texts):
        """Return the weights of all heads, for tokens as tuples. They depend on nothing else."""
        tokens = torch.tensor(texts)
        (B, L), at, opens = tokens.shape, torch.arange(tokens.shape[1]), tokens < KINDS
        first = torch.where(opens.any(-1), opens.int().argmax(-1), -1)[:, None].expand(B, L)
        last = last_opener(tokens)  # (B, L)
        zero = tokens.gather(1, last.clamp(min=0)) == 0  # (B, L)
        targets = {"last": last, "first": first, "itself": at.expand(B, L)}
        targets |= {"last, a 0": last.where(zero, -1), "last, no 0": last.where(~zero, -1)}
        targets |= {"before": (at - 1).expand(B, L), "nowhere": torch.full((B, L), -1)}
        seen = []
        for layer, heads in enumerate(roles):
            scores = noise[layer, :, :L, :L].expand(B, -1, -1, -1).clone()  # (B, H, L, L)
            for h, (where, strength, _) in enumerate(heads):
                aim = F.one_hot(targets[where] + 1, L + 1)[..., 1:]  # (B, L, L), none for -1
                scores[:, h] += strength * aim
            hidden = torch.ones(L, L).triu(1) > 0
            seen.append(scores.masked_fill(hidden, -torch.inf).softmax(dim=-1))
        return torch.stack(seen)  # (layers, B, H, L, L)

    def model(tokens, removed=()):
        removed, (B, L) = {tuple(head) for head in removed}, tokens.shape
        weights = attend(tuple(map(tuple, tokens.tolist())))
        kind = F.one_hot(tokens.clamp(max=KINDS), KINDS + 1)[..., :KINDS].float()
        kinds = kind, kind * ((0, root) not in removed)  # (B, L, KINDS), what each layer reads
        answer = guess * torch.arange(KINDS).expand(B, L, KINDS)
        for layer, heads in enumerate(roles):
            for h, (_, _, amount) in enumerate(heads):
                if (layer, h) not in removed and amount:
                    answer = answer + torch.tensor(amount) * (weights[layer, :, h] @ kinds[layer])
        return answer, weights.clone()

    to_choose = torch.randint(KINDS, V, (20, 16), generator=rng)
    for start in (0, 8):  # one opener in each half
        at = start + torch.randint(8, (20, 1), generator=rng)
        kinds = torch.randint(KINDS, (20, 1), generator=rng)
        chance = torch.rand(20, 1, generator=rng)
        kinds = kinds.masked_fill(chance < often, 0)
        to_choose.scatter_(1, at, kinds.masked_fill((kinds == 0) & (chance < rare), 1))
    held_out = torch.randint(V, (20, 24), generator=rng)  # with more openers
    held_out[0] = held_out[0].clamp(min=KINDS)  # and one text without any
    return model, to_choose, held_out


def hard_models():
    """Return what `brackets` does for models in which a shorter rule finds a wrong head.

    In the first two, the head with the highest weight on the bracket costs less than 0.1, but more
    on the texts to test on. In the others, the head to find is not the most expensive one. In the
    last, it is in layer 0.
    """
    return [
        build(2, ["adds 0", "adds 1, 2", "mirror", "booster", "back"], rare=0.75),
        build(9, ["adds 0", "weak 1, 2", "mirror", "idle", "back"], rare=0.85),
        build(21, ["adds 0", "adds 1, 2", "mirror", "mirror", "spoiler"], rare=0.5),
        build(51, ["spoiler", "adds 1, 2", "mirror", "back", "idle"], rare=0.3, below="adds 0"),
    ]
