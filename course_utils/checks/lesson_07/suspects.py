"""7.8's suspects: small models, built by hand, whose heads stand in any order.

Of each token the stream holds five blocks: the token, a note, what is asked for, the answer, and
one that nobody reads. Each head looks somewhere and copies the token block into another one.
"""

import torch
import torch.nn.functional as F

TOKEN, NOTE, ASKED, ANSWER, UNREAD = range(5)
HEADS = {  # by name: where it looks, where it writes, how much
    "writer": ("before", NOTE, 1.0),
    "echo": ("before", UNREAD, 1.0),
    "finder": ("after", ANSWER, 1.0),
    "mirror": ("after", UNREAD, 1.0),
    "asker": ("itself", ASKED, 1.0),
    "idle": ("anywhere", ANSWER, 0.2),
}
LAYERS = [  # one string a layer; a note that a writer leaves in the last one comes too late
    ("writer echo idle", "finder mirror idle"),
    ("writer writer echo idle", "finder idle finder writer"),
    ("idle echo", "writer idle", "mirror finder"),
    ("asker writer idle", "finder writer mirror"),
    ("writer writer", "idle finder"),
    ("writer idle", "writer mirror", "finder finder"),
]
LOUD = 8.0  # beside noise of size 1


def suspect(seed, V=14, B=12, L=36):
    """Return a model, and texts (B, L) that repeat.

    ``model(tokens, removed=[])`` returns logits (B, L, V) and weights (layers, B, H, L, L);
    ``removed`` names heads as (layer, head), both from 0, whose results reach nothing.
    """
    rng = torch.Generator().manual_seed(seed)
    layers = [layer.split() for layer in LAYERS[seed % len(LAYERS)]]
    layers = [[names[i] for i in torch.randperm(len(names), generator=rng)] for names in layers]
    noise = torch.randn(len(layers), len(layers[0]), L, L, generator=rng)
    asks = ASKED if "asker" in layers[0] else TOKEN
    periods = torch.randint(5, 13, (B, 1), generator=rng)
    patterns = torch.rand(B, V, generator=rng).argsort(dim=-1)  # no token twice in a period

    def model(tokens, removed=()):
        removed, (_, L) = {tuple(head) for head in removed}, tokens.shape
        token = F.one_hot(tokens, V).float()  # (B, L, V)
        blocks = torch.stack([token, *[torch.zeros_like(token)] * 4])  # (5, B, L, V)
        seen = []
        for layer, names in enumerate(layers):
            now, weights = blocks.clone(), []
            for head, name in enumerate(names):
                look, to, strength = HEADS[name]
                scores = _scores(look, now[asks], now[NOTE]) + noise[layer, head, :L, :L]
                hidden = torch.ones(L, L).triu(1) > 0
                weights.append(scores.masked_fill(hidden, -torch.inf).softmax(dim=-1))
                if (layer, head) not in removed:
                    blocks[to] += strength * weights[-1] @ token  # (B, L, V)
            seen.append(torch.stack(weights, dim=1))  # (B, H, L, L)
        return blocks[ANSWER], torch.stack(seen)

    return model, patterns.gather(1, torch.arange(L) % periods)


def _scores(look, asked, notes):
    """Return scores (B, L, L) of a head for what is asked and the notes, (B, L, V) each."""
    B, L, _ = asked.shape
    found = asked @ notes.mT if look == "after" else torch.zeros(B, L, L)
    if look == "after":
        found[..., 0] = -1  # the first token sees but itself: its note says that it follows itself
    elif look != "anywhere":
        found = found + torch.eye(L).roll(-1 if look == "before" else 0, dims=-1)
    return LOUD * found
