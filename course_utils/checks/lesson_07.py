"""Lesson 07's exercises: data that repeats, what a head looks at, copies, and is good for.

All probes are float32, as the lesson's tensors are: a right answer may hold an identity or a mask
of that type.
"""

import torch
import torch.nn.functional as F

from course_utils.attention import follows_same_token, induction_score, previous_token_score
from course_utils.checks.engine import Exercise

# 7.1 repeat_pattern


def repeat_pattern(pattern, length):
    return pattern[..., torch.arange(length) % pattern.shape[-1]]


def _patterns():
    return [
        (torch.tensor([5, 9, 2]), 8),
        (torch.tensor([4, 1, 7, 3]), 12),  # fits without rest
        (torch.tensor([6, 2, 8, 1, 3]), 4),  # not even once
        (torch.tensor([[3, 1], [0, 2], [5, 4]]), 7),
    ]


repeat = Exercise("7.1", repeat_pattern, _patterns, names="length")


@repeat.mistake(
    "each token is repeated where it stands, 5 5 9 9; the whole pattern must come again"
)
def tokens_stutter(pattern, length):
    times = -(-length // pattern.shape[-1])
    return pattern.repeat_interleave(times, dim=-1)[..., :length]


@repeat.mistake("the last, unfinished repetition is missing: the result must be `length` long")
def whole_periods_only(pattern, length):
    period = pattern.shape[-1]
    return repeat_pattern(pattern, length // period * period)


@repeat.mistake("one repetition too many is left standing: cut the result at `length`")
def not_cut(pattern, length):
    period = pattern.shape[-1]
    return repeat_pattern(pattern, (length // period + 1) * period)


@repeat.mistake("`length` repetitions: length is the number of tokens, not of patterns")
def length_counts_patterns(pattern, length):
    return repeat_pattern(pattern, length * pattern.shape[-1])


@repeat.mistake("every other repetition runs backwards; the pattern starts again at its beginning")
def there_and_back(pattern, length):
    return repeat_pattern(torch.cat([pattern, pattern.flip(-1)], dim=-1), length)


@repeat.mistake("after the first time the last token is repeated; start again at the beginning")
def last_token_held(pattern, length):
    return pattern[..., torch.arange(length).clamp(max=pattern.shape[-1] - 1)]


# 7.2 dictionary_answer


def dictionary_answer(query, keys, values):
    return values[keys == query[:, None]]


def _dictionaries():
    rng = torch.Generator().manual_seed(72)

    def probe(B, S, symbols):
        keys = torch.rand(B, symbols, generator=rng).argsort(dim=-1)[:, :S]
        values = torch.randint(symbols, (B, S), generator=rng)
        at = torch.randint(S, (B, 1), generator=rng)
        return keys.gather(1, at)[:, 0], keys, values

    # as many symbols as places: one taken as a position leads somewhere, mostly wrong
    return [probe(5, 4, 4), probe(3, 7, 12), probe(8, 6, 6), probe(4, 5, 5)]


dictionary = Exercise("7.2", dictionary_answer, _dictionaries, names="B")


@dictionary.mistake("that is where the key stands; the answer is the value that stands there")
def place_of_the_key(query, keys, values):
    return (keys == query[:, None]).int().argmax(dim=-1)


@dictionary.mistake("that is the key itself: take from values at that place")
def key_returned(query, keys, values):
    return query


@dictionary.mistake(
    "the symbol is used as a position; it is a name: find the place at which keys equals it"
)
def symbol_as_position(query, keys, values):
    return values[torch.arange(len(query)), query]


@dictionary.mistake("keys and values are swapped: the query is looked for among the keys")
def looked_for_among_values(query, keys, values):
    return keys.gather(1, (values == query[:, None]).int().argmax(-1, keepdim=True))[:, 0]


@dictionary.mistake("all examples are answered from the first dictionary; each has its own")
def first_dictionary_for_all(query, keys, values):
    place = (keys == query[:, None]).int().argmax(dim=-1)
    return values[0][place]


@dictionary.mistake("the comparison is the wrong way round: that is a key which is not the query")
def first_other_key(query, keys, values):
    return values.gather(1, (keys != query[:, None]).int().argmax(-1, keepdim=True))[:, 0]


@dictionary.mistake("right values as (B, 1); one answer an example is (B,)")
def kept_dimension(query, keys, values):
    return dictionary_answer(query, keys, values)[:, None]


# 7.3 previous_token_score


def _heads():
    rng = torch.Generator().manual_seed(73)

    def causal(B, H, L):
        scores = 2 * torch.randn(B, H, L, L, generator=rng)
        return scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf).softmax(dim=-1)

    free = torch.randn(2, 3, 5, 5, generator=rng).softmax(dim=-1)  # no mask
    return [(causal(3, 2, 5),), (causal(1, 4, 7),), (free,), (causal(2, 3, 6),)]


previous = Exercise("7.3", previous_token_score, _heads, names="H")


@previous.mistake(
    "that is the diagonal: each token's weight on itself; one place to the left of it"
)
def weight_on_itself(weights):
    return weights.diagonal(0, -2, -1).mean(dim=(0, -1))


@previous.mistake(
    "that is the weight on the token after: rows are queries, so key i - 1 of query i lies below "
    "the diagonal"
)
def weight_on_the_next(weights):
    return weights.diagonal(1, -2, -1).mean(dim=(0, -1))


@previous.mistake(
    "divided by L, but the first query has no token before it: there are L - 1 to average over"
)
def first_query_counted(weights):
    return weights.diagonal(-1, -2, -1).sum(dim=-1).mean(dim=0) / weights.shape[-1]


@previous.mistake("all earlier keys are added up; only the one right before counts")
def all_keys_before(weights):
    return weights.tril(-1).sum(dim=-1)[..., 1:].mean(dim=(0, -1))


@previous.mistake("summed over the queries; a score from 0 to 1 is their mean")
def summed_over_queries(weights):
    return weights.diagonal(-1, -2, -1).sum(dim=-1).mean(dim=0)


@previous.mistake("one number for all heads together: average over B and queries, keep H")
def all_heads_together(weights):
    return weights.diagonal(-1, -2, -1).mean()


@previous.mistake("one number for each sequence and head, (B, H): average over the sequences too")
def sequences_kept_apart(weights):
    return weights.diagonal(-1, -2, -1).mean(dim=-1)


@previous.mistake(
    "that is how often the previous token is the strongest; asked is the weight it gets, on average"
)
def how_often_strongest(weights):
    L = weights.shape[-1]
    strongest = weights.argmax(dim=-1)[..., 1:]  # (B, H, L - 1)
    return (strongest == torch.arange(L - 1)).to(weights.dtype).mean(dim=(0, -1))


# 7.4 previous_occurrence


def previous_occurrence(tokens):
    L = tokens.shape[-1]
    earlier = (tokens[..., :, None] == tokens[..., None, :]).tril(-1)  # (..., L, L)
    return torch.where(earlier, torch.arange(L), -1).amax(dim=-1)


def _texts():
    return [
        (torch.tensor([5, 9, 5, 5, 2, 9, 5]),),
        (torch.tensor([1, 2, 3, 4]),),  # nothing returns
        (torch.tensor([[7, 7, 7, 7, 7], [0, 3, 0, 3, 0], [4, 0, 1, 1, 4]]),),
        (torch.tensor([[2, 0, 1, 2, 0, 1, 2, 0, 1]]),),
    ]


occurrence = Exercise("7.4", previous_occurrence, _texts, names="L")


@occurrence.mistake("that is the first occurrence; asked is the last one before the token")
def first_occurrence(tokens):
    earlier = (tokens[..., :, None] == tokens[..., None, :]).tril(-1)
    return torch.where(earlier.any(dim=-1), earlier.int().argmax(dim=-1), -1)


@occurrence.mistake("every token finds itself: the occurrence must lie strictly before it")
def finds_itself(tokens):
    return torch.arange(tokens.shape[-1]).expand(tokens.shape).clone()


@occurrence.mistake("it finds the next occurrence; the future must not be looked at")
def next_occurrence(tokens):
    L = tokens.shape[-1]
    later = (tokens[..., :, None] == tokens[..., None, :]).triu(1)
    found = torch.where(later, torch.arange(L), L).amin(dim=-1)
    return found.where(found < L, torch.full_like(found, -1))


@occurrence.mistake("that is the last occurrence anywhere, later ones too: only those before count")
def last_of_all(tokens):
    same = tokens[..., :, None] == tokens[..., None, :]
    return torch.where(same, torch.arange(tokens.shape[-1]), -1).amax(dim=-1)


@occurrence.mistake("the last *other* occurrence, later ones too: only those before count")
def last_other(tokens):
    L = tokens.shape[-1]
    same = (tokens[..., :, None] == tokens[..., None, :]) & ~torch.eye(L, dtype=torch.bool)
    return torch.where(same, torch.arange(L), -1).amax(dim=-1)


@occurrence.mistake("that is how far back it lies; asked is its position, counted from 0")
def distance_back(tokens):
    at = previous_occurrence(tokens)
    return torch.where(at < 0, -1, torch.arange(tokens.shape[-1]) - at)


@occurrence.mistake("a token without an earlier occurrence must get -1; 0 is the first position")
def zero_if_none(tokens):
    return previous_occurrence(tokens).clamp(min=0)


@occurrence.mistake(
    "one place too far: that is the token after the occurrence, where an induction head looks; "
    "here the occurrence itself"
)
def one_after(tokens):
    at = previous_occurrence(tokens)
    return torch.where(at < 0, -1, at + 1)


@occurrence.mistake("that is whether the token has occurred, not where")
def whether_not_where(tokens):
    return previous_occurrence(tokens) >= 0


# 7.5 induction_score


def _heads_and_texts():
    rng = torch.Generator().manual_seed(75)

    def probe(B, H, L, symbols):
        tokens = torch.randint(symbols, (B, L), generator=rng)
        # two equal neighbours, a row where little repeats, and rows that repeat much
        tokens[0, :4] = torch.tensor([1, 1, 0, 1])
        tokens[-1, : L // 2] = torch.arange(L // 2) + symbols
        scores = 2 * torch.randn(B, H, L, L, generator=rng)
        weights = scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf).softmax(dim=-1)
        return weights, tokens

    return [probe(3, 2, 8, 4), probe(2, 3, 11, 3), probe(4, 1, 9, 5), probe(3, 2, 8, 4)]


induction = Exercise("7.5", induction_score, _heads_and_texts, names="H")


def _scored(weights, wanted):
    """Return the mean weight on the wanted keys over queries that have one, as the score does."""
    found = (weights * wanted[:, None]).sum(dim=-1)
    return found.sum(dim=(0, 2)) / wanted.any(dim=-1).sum()


def _same(tokens):
    return tokens[:, :, None] == tokens[:, None, :]  # (B, L, L)


@induction.mistake(
    "that is the weight on the earlier occurrence itself; an induction head looks one place "
    "further, at what came after it"
)
def on_the_occurrence(weights, tokens):
    return _scored(weights, _same(tokens).tril(-1))


@induction.mistake("one place in the wrong direction: that is the token before the occurrence")
def before_the_occurrence(weights, tokens):
    return _scored(weights, F.pad(_same(tokens).tril(-1)[..., 1:], (0, 1)))


@induction.mistake(
    "one place in the wrong direction: that is the token before the occurrence, and so every query "
    "finds the key before its own"
)
def before_every_match(weights, tokens):
    return _scored(weights, F.pad(_same(tokens)[..., 1:], (0, 1)).tril(-1))


@induction.mistake(
    "only the last earlier occurrence counts there; what came after any of them is as good"
)
def last_occurrence_only(weights, tokens):
    after = previous_occurrence(tokens) + 1  # (B, L), 0 where there is none
    wanted = F.one_hot(after, tokens.shape[-1]) > 0
    return _scored(weights, wanted & (after > 0)[..., None])


@induction.mistake("only the first occurrence counts there; what came after any of them is as good")
def first_occurrence_only(weights, tokens):
    after = first_occurrence(tokens) + 1
    wanted = F.one_hot(after, tokens.shape[-1]) > 0
    return _scored(weights, wanted & (after > 0)[..., None])


@induction.mistake(
    "averaged over all queries; those whose token is new have nowhere to look and must not count"
)
def new_tokens_counted(weights, tokens):
    found = (weights * follows_same_token(tokens)[:, None]).sum(dim=-1)
    return found.mean(dim=(0, 2))


@induction.mistake(
    "averaged over single cells; add up the weights of a query's cells, then average over queries"
)
def mean_over_cells(weights, tokens):
    wanted = follows_same_token(tokens)
    return (weights * wanted[:, None]).sum(dim=(0, 2, 3)) / wanted.sum()


@induction.mistake(
    "averaged within each sequence first; the mean is over the queries of all together"
)
def each_sequence_first(weights, tokens):
    wanted = follows_same_token(tokens)
    found = (weights * wanted[:, None]).sum(dim=(2, 3))  # (B, H)
    return (found / wanted.any(dim=-1).sum(dim=-1, keepdim=True)).mean(dim=0)


@induction.mistake(
    "in 5 5 the key after the first 5 is the second one itself, and it counts: .tril(), not "
    ".tril(-1)"
)
def itself_left_out(weights, tokens):
    return _scored(weights, follows_same_token(tokens).tril(-1))


@induction.mistake(
    "queries whose token returns only *later* are counted too; an occurrence must be an earlier one"
)
def later_occurrences_counted(weights, tokens):
    return _scored(weights, F.pad(_same(tokens)[..., :-1], (1, 0)))


@induction.mistake(
    "`roll` brings the last key round to the front; nothing came before key 0, so it is never one"
)
def rolled_round(weights, tokens):
    return _scored(weights, _same(tokens).roll(1, dims=-1).tril())


@induction.mistake("one number for all heads together: keep the dimension H")
def heads_not_kept(weights, tokens):
    return induction_score(weights, tokens).mean()


# 7.6 repeated_accuracy


def repeated_accuracy(logits, tokens):
    right = logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]  # (B, L - 1)
    seen = previous_occurrence(tokens)[:, :-1] >= 0
    return right[seen].float().mean()


def _predictions():
    rng = torch.Generator().manual_seed(26)

    def probe(B, L, V):
        period = torch.randint(3, L - 2, (B, 1), generator=rng)
        pattern = torch.rand(B, V, generator=rng).argsort(dim=-1)
        tokens = pattern.gather(1, torch.arange(L) % period)
        logits = torch.randn(B, L, V, generator=rng)
        # right predictions are likelier where the token has been seen, and some are wrong
        logits[:, :-1].scatter_add_(
            2, tokens[:, 1:, None], 3.0 * (torch.arange(1, L)[None] >= period)[..., None].float()
        )
        # some predictions repeat the present token, so that a missing shift scores something
        logits.scatter_add_(2, tokens[..., None], torch.ones(B, L, 1))
        return logits, tokens

    return [probe(3, 9, 8), probe(5, 14, 12), probe(2, 11, 10), probe(4, 16, 15)]


accuracy = Exercise("7.6", repeated_accuracy, _predictions)


@accuracy.mistake(
    "predictions are compared with the tokens at their own place; those at i predict token i + 1"
)
def not_shifted(logits, tokens):
    right = logits.argmax(dim=-1) == tokens
    return right[previous_occurrence(tokens) >= 0].float().mean()


@accuracy.mistake("every prediction counts there; those after a new token nobody can get right")
def all_predictions(logits, tokens):
    return (logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]).float().mean()


@accuracy.mistake(
    "the *next* token has been seen there; what matters is whether the present one has, from which "
    "the prediction is made"
)
def next_token_seen(logits, tokens):
    right = logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]
    return right[previous_occurrence(tokens)[:, 1:] >= 0].float().mean()


@accuracy.mistake(
    "the last token is in the divisor, but no prediction from it can be checked: leave it out "
    "there too"
)
def last_token_counted(logits, tokens):
    right = logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]
    seen = previous_occurrence(tokens) >= 0
    return (right & seen[:, :-1]).sum() / seen.sum()


@accuracy.mistake("position 0 is an occurrence too: >= 0, not > 0; none is -1")
def first_position_is_none(logits, tokens):
    right = logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]
    return right[previous_occurrence(tokens)[:, :-1] > 0].float().mean()


@accuracy.mistake("shifted the wrong way: predictions at i are compared with token i - 1")
def shifted_backwards(logits, tokens):
    right = logits[:, 1:].argmax(dim=-1) == tokens[:, :-1]
    return right[previous_occurrence(tokens)[:, 1:] >= 0].float().mean()


@accuracy.mistake(
    "wrong ones are divided away: divide by how many predictions count, not by how many there are"
)
def divided_by_all(logits, tokens):
    right = logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]
    seen = previous_occurrence(tokens)[:, :-1] >= 0
    return (right & seen).float().mean()


@accuracy.mistake(
    "averaged within each sequence first; sequences with few repeated tokens then weigh too much"
)
def averaged_by_sequence(logits, tokens):
    right = logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]
    seen = previous_occurrence(tokens)[:, :-1] >= 0
    return ((right & seen).sum(dim=-1) / seen.sum(dim=-1)).mean()


@accuracy.mistake("that is the number of right ones; the accuracy is their share")
def counted_not_shared(logits, tokens):
    right = logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]
    return right[previous_occurrence(tokens)[:, :-1] >= 0].sum().item()


# 7.7 silence_heads


def silence_heads(W_o, heads, num_heads):
    blocks = W_o.clone().unflatten(-1, (num_heads, -1))  # (d_model, H, d_k)
    blocks[:, heads] = 0
    return blocks.flatten(-2)


def _projections():
    rng = torch.Generator().manual_seed(77)

    def probe(d_model, num_heads, heads):
        return torch.randn(d_model, d_model, generator=rng), heads, num_heads

    return [probe(6, 3, [1]), probe(12, 3, [0, 2]), probe(8, 4, [3, 1]), probe(6, 3, [])]


silence = Exercise("7.7", silence_heads, _projections, names="d_model d_model")


@silence.mistake("those are rows, what W_o gives out; a head comes in through its columns")
def rows_silenced(W_o, heads, num_heads):
    return silence_heads(W_o.T, heads, num_heads).T


@silence.mistake("the other way round: these heads are kept, and all the others silenced")
def others_silenced(W_o, heads, num_heads):
    return silence_heads(W_o, [h for h in range(num_heads) if h not in heads], num_heads)


@silence.mistake("one column a head; head h has d_k = d_model / num_heads of them, from h · d_k on")
def one_column_each(W_o, heads, num_heads):
    W_o = W_o.clone()
    W_o[:, heads] = 0
    return W_o


@silence.mistake(
    "every num_heads-th column; the columns of a head stand side by side, d_k of them (lesson 05)"
)
def columns_in_turns(W_o, heads, num_heads):
    W_o = W_o.clone()
    for head in heads:
        W_o[:, head::num_heads] = 0
    return W_o


@silence.mistake("blocks of num_heads columns; a head is d_k = d_model / num_heads columns wide")
def width_and_number_swapped(W_o, heads, num_heads):
    W_o = W_o.clone()
    for head in heads:
        W_o[:, head * num_heads : (head + 1) * num_heads] = 0
    return W_o


@silence.mistake("only the first of the heads is silenced; the list may name several, or none")
def first_head_only(W_o, heads, num_heads):
    return silence_heads(W_o, heads[:1], num_heads)


@silence.mistake("heads are counted from 0, as in code; these are one too early")
def counted_from_one(W_o, heads, num_heads):
    return silence_heads(W_o, [head - 1 for head in heads if head > 0], num_heads)


# 7.8 copying_score


def copying_score(E, W_v, W_o, U):
    effect = E @ W_v @ W_o @ U  # (V, V), token looked at, logit raised
    return (effect.argmax(dim=-1) == torch.arange(len(E))).double().mean()


def _circuits():
    rng = torch.Generator().manual_seed(95)

    def probe(V, d_model, d_k, strength):
        def normal(*shape):
            return torch.randn(*shape, generator=rng)

        E, W_v, W_o = normal(V, d_model), normal(d_model, d_k), normal(d_k, d_model)
        # between noise and a perfect copy, so that some tokens are copied, and of the first three
        # the opposite; biased logits, so that rows and columns differ
        factors = torch.where(torch.arange(V) < 3, -2, 1)
        U = strength * torch.linalg.pinv(E @ W_v @ W_o) * factors + normal(d_model, V) / 40
        return E, W_v, W_o, U + 0.02 * normal(V)

    return [probe(9, 7, 5, 0.3), probe(12, 10, 6, 0.4), probe(7, 8, 5, 0.2), probe(15, 8, 4, 0.5)]


copying = Exercise("7.8", copying_score, _circuits)


@copying.mistake(
    "the largest of each column: which token raises a logit most; asked is which logit a token, a "
    "row, raises most"
)
def largest_of_columns(E, W_v, W_o, U):
    effect = E @ W_v @ W_o @ U
    return (effect.argmax(dim=0) == torch.arange(len(E))).double().mean()


@copying.mistake("that is the mean of the diagonal; count how often it holds a row's largest entry")
def mean_of_the_diagonal(E, W_v, W_o, U):
    return (E @ W_v @ W_o @ U).diagonal().mean()


@copying.mistake("the number of tokens copied; the score is their share")
def number_of_copied(E, W_v, W_o, U):
    return (copying_score(E, W_v, W_o, U) * len(E)).item()


@copying.mistake("how often a token raises its own logit at all; it must raise no other one more")
def raised_at_all(E, W_v, W_o, U):
    return ((E @ W_v @ W_o @ U).diagonal() > 0).double().mean()


@copying.mistake("the head is left out: E U alone; what it moves goes through W_v and W_o")
def head_left_out(E, W_v, W_o, U):
    return ((E @ U).argmax(dim=-1) == torch.arange(len(E))).double().mean()


@copying.mistake("E.T is taken for U: what a token carries becomes logits through U")
def embeddings_for_logits(E, W_v, W_o, U):
    return copying_score(E, W_v, W_o, E.T)


@copying.mistake("largest in size: a logit that is pushed down far is not raised; leave the sign")
def largest_in_size(E, W_v, W_o, U):
    effect = (E @ W_v @ W_o @ U).abs()
    return (effect.argmax(dim=-1) == torch.arange(len(E))).double().mean()


@copying.mistake("the smallest logit of each token; asked is the largest: argmax")
def smallest_logit(E, W_v, W_o, U):
    effect = E @ W_v @ W_o @ U
    return (effect.argmin(dim=-1) == torch.arange(len(E))).double().mean()
