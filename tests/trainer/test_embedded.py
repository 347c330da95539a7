"""The embedded Driver's tokenizer and warm start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the train extra isn't installed")

from data_pipeline.world.demonstrator import phrases  # noqa: E402
from data_pipeline.world.names import SYLLABLES  # noqa: E402
from disco_rl.trainer.embedded.muon import Muon, orthogonal  # noqa: E402
from disco_rl.trainer.embedded.tokenizer import CHAT_PIECES, build_tokenizer  # noqa: E402
from disco_rl.trainer.embedded.warm_start import (  # noqa: E402
    Demonstration,
    ModelSize,
    WarmStart,
    build_model,
    encode,
    train,
)
from disco_rl.trainer.server_driver import ChatEncoder  # noqa: E402

TEXTS = ["plan 4\nquestion: Who is the mayor of Kelvor?\n", "The mayor of Kelvor is Tesmar."] * 4
TINY = ModelSize(hidden=32, layers=2, heads=2, kv_heads=2, intermediate=64)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(TEXTS, 400, phrases())


def demonstration(question: str, reply: str) -> Demonstration:
    return Demonstration(({"role": "user", "content": question},), reply)


@given(text=st.text(max_size=200))
def test_every_text_round_trips(text):
    tokenizer = build_tokenizer(TEXTS, 400, phrases())
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


NAMES = st.lists(st.sampled_from(SYLLABLES), min_size=2, max_size=3)


@given(syllables=NAMES, before=st.sampled_from(("", " ", "the ", "answer: ", "(")))
def test_a_name_is_cut_between_syllables_and_never_across_words(syllables, before):
    tokenizer = build_tokenizer(TEXTS, 400, phrases(), SYLLABLES)
    text = f"{before}{''.join(syllables).capitalize()} Guild, 1811"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    splits = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
    pieces = [text[start:end].strip() for _, (start, end) in splits if end > len(before)]
    known = {*SYLLABLES, *(syllable.capitalize() for syllable in SYLLABLES)}
    at = next(i for i, piece in enumerate(pieces) if piece == "Guild")
    assert at >= 2 and set(pieces[:at]) <= known
    assert pieces[-2:] == ["18", "11"]


def test_skeleton_pieces_are_one_token(tokenizer):
    for piece in (*phrases(), *CHAT_PIECES, "<think>", "</think>", "<|im_end|>"):
        assert len(tokenizer.encode(piece, add_special_tokens=False)) == 1, piece


def test_template_puts_empty_thinking_only_where_thinking_is_off(tokenizer):
    messages = [{"role": "user", "content": "Hi"}]
    on = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    off = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert on == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert off == on + "<think>\n\n</think>\n\n"


def test_demonstrations_are_encoded_as_the_trainer_will_prompt(tokenizer):
    shown = demonstration("Who?", " Tesmar")
    prompt, reply = encode(shown, tokenizer, {"enable_thinking": False})
    encoder = ChatEncoder(tokenizer, {"enable_thinking": False})
    assert prompt == list(encoder.encode(shown.messages))
    assert reply[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(reply[:-1]) == " Tesmar"


def learn(tokenizer, seed: int):
    examples = [
        encode(demonstration(f"Who rules {name}?", f" {name}"), tokenizer, {})
        for name in ("Kelvor", "Tesmar", "Balor", "Zimtar")
    ]
    model = build_model(TINY, tokenizer, seed)
    losses: list[float] = []
    schedule = WarmStart(steps=150, batch=4, lr=1e-2, copy_steps=3, warmup=5, seed=seed)
    done = train(model, examples, schedule, lambda step, loss: losses.append(loss))
    assert done == 150
    return model, losses


def test_it_learns_and_the_same_seed_gives_the_same_weights(tokenizer):
    first, losses = learn(tokenizer, 1)
    assert losses[-1] < 0.2 * losses[0]
    again, _ = learn(tokenizer, 1)
    other, _ = learn(tokenizer, 2)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name
    assert any(not torch.equal(w, other.state_dict()[n]) for n, w in first.state_dict().items())


def test_padding_changes_no_loss(tokenizer):
    """A short example beside a long one is learned as if it stood alone."""
    from disco_rl.trainer.embedded.warm_start import _losses

    model = build_model(TINY, tokenizer, 0).eval()
    short = encode(demonstration("Who?", " A"), tokenizer, {})
    long = encode(demonstration("Who rules " + "Kelvor and " * 20, " B and " * 9), tokenizer, {})
    with torch.no_grad():
        alone = [_losses(model, [one], 0.0)[1] * len(one[1]) for one in (short, long)]
        both = _losses(model, [short, long], 0.0)[1] * (len(short[1]) + len(long[1]))
    assert torch.allclose(sum(alone), both, atol=1e-4)


def test_time_limit_ends_it_early(tokenizer):
    examples = [encode(demonstration("Who?", " A"), tokenizer, {})]
    model = build_model(TINY, tokenizer, 0)
    assert train(model, examples, WarmStart(steps=10**6, copy_steps=0, seconds=0.2)) < 10**6


def test_orthogonal_brings_singular_values_near_one():
    matrices = torch.randn(3, 24, 8, generator=torch.Generator().manual_seed(0))
    for shape in (matrices, matrices.mT):
        values = torch.linalg.svdvals(orthogonal(shape))
        assert values.min() > 0.5 and values.max() < 1.3


def test_muon_moves_hidden_matrices_alike_whatever_the_gradients_size():
    weight = torch.nn.Parameter(torch.zeros(8, 8))
    bias = torch.nn.Parameter(torch.zeros(8))
    optimizer = Muon([("layer.weight", weight), ("layer.bias", bias)], 0.1, weight_decay=0.0)
    moved = []
    for size in (1e-3, 1e3):
        start = weight.detach().clone()
        optimizer.zero_grad()
        (
            size * (weight @ torch.randn(8, 8)).square().sum() + size * weight.sum() + bias.sum()
        ).backward()
        optimizer.step()
        moved.append((weight.detach() - start).norm().item())
    assert 0.5 < moved[0] / moved[1] < 2
    assert bias.abs().max() > 0
