"""The batch generator against the plain forward pass of the same model."""

from __future__ import annotations

import asyncio
import copy
import time

import numpy as np
import pytest
import torch

from disco_rl.trainer.cpu.generator import BatchGenerator, Completion, Request
from disco_rl.trainer.cpu.sampling import SamplingParams, sample, uniforms
from tests.trainer.tiny import make_model, make_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def reference(tokenizer):
    return make_model(tokenizer, layers=3, hidden=64, heads=4, kv_heads=2, window=256).eval()


@pytest.fixture
def generator(reference, tokenizer):
    made = BatchGenerator(copy.deepcopy(reference), [tokenizer.eos_token_id], seed=3)
    yield made
    made.close()


def prompts(count: int, low: int = 3, high: int = 60, seed: int = 0) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return [
        tuple(int(t) for t in rng.integers(3, 300, size=rng.integers(low, high)))
        for _ in range(count)
    ]


def trainer_log_probs(model, prompt, output, temperature: float) -> torch.Tensor:
    """As verl's actor: one forward pass over prompt and output, logits over the temperature."""
    ids = torch.tensor([[*prompt, *output]])
    with torch.inference_mode():
        logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1).gather(-1, torch.tensor(output)[:, None])[:, 0]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_one_forward_pass(generator, reference, temperature):
    requests = [
        Request(p, SamplingParams(temperature=temperature, max_tokens=n))
        for p, n in zip(prompts(24), [1, 5, 40] * 8, strict=True)
    ]
    for request, done in zip(requests, generator.generate(requests), strict=True):
        expected = trainer_log_probs(reference, request.prompt_ids, done.output_ids, temperature)
        assert torch.allclose(torch.tensor(done.log_probs), expected, atol=5e-6, rtol=0)


def test_a_shifted_prompt_would_be_seen(generator, reference):
    # The parity test above has power: one token off gives other log-probs.
    request = Request(prompts(1)[0], SamplingParams(max_tokens=20))
    (done,) = generator.generate([request])
    shifted = trainer_log_probs(reference, request.prompt_ids[1:], done.output_ids, 1.0)
    assert (torch.tensor(done.log_probs) - shifted).abs().max() > 1e-4


def test_greedy_is_the_argmax_of_each_step(generator, reference):
    prompt = prompts(1, seed=5)[0]
    (done,) = generator.generate([Request(prompt, SamplingParams(temperature=0, max_tokens=12))])
    ids = list(prompt)
    for token in done.output_ids:
        with torch.inference_mode():
            best = int(reference(torch.tensor([ids])).logits[0, -1].argmax())
        assert token == best
        ids.append(token)


def test_tokens_do_not_depend_on_the_batch(generator):
    wanted = Request(prompts(1, seed=7)[0], SamplingParams(max_tokens=30, seed=11))
    (alone,) = generator.generate([wanted])
    others = [Request(p, SamplingParams(max_tokens=9)) for p in prompts(30, seed=8)]
    crowd = generator.generate([*others[:15], wanted, *others[15:]])
    assert crowd[15].output_ids == alone.output_ids


def test_same_seed_same_tokens_and_twins_differ(reference, tokenizer):
    requests = [Request(p, SamplingParams(max_tokens=20)) for p in prompts(3) for _ in range(4)]
    outputs = []
    for order in (1, -1):
        made = BatchGenerator(copy.deepcopy(reference), [tokenizer.eos_token_id], seed=3)
        outputs.append(sorted(c.output_ids for c in made.generate(requests[::order])))
        made.close()
    assert outputs[0] == outputs[1]
    assert len({tuple(o) for o in outputs[0]}) == len(requests)


def test_a_new_epoch_draws_new_tokens(generator):
    request = Request(prompts(1)[0], SamplingParams(max_tokens=20))
    seen = []
    for epoch in (1, 2, 1):
        generator.reseed(epoch)
        seen.append(generator.generate([request])[0].output_ids)
    assert seen[0] == seen[2] != seen[1]


def test_stop_ids_limits_and_window(generator, reference):
    prompt = prompts(1, seed=2)[0]
    (free,) = generator.generate([Request(prompt, SamplingParams(max_tokens=20, seed=5))])
    assert free.finish_reason == "length" and len(free.output_ids) == 20
    stop = free.output_ids[4]
    (cut,) = generator.generate(
        [Request(prompt, SamplingParams(max_tokens=20, seed=5, stop_token_ids=(stop,)))]
    )
    assert cut.output_ids == free.output_ids[: free.output_ids.index(stop) + 1]
    assert cut.finish_reason == "stop"
    (full,) = generator.generate([Request(prompt, SamplingParams(seed=5, ignore_eos=True))])
    assert len(full.output_ids) == generator.window - len(prompt)
    assert full.finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "limit"),
    [((), "at least 1"), ((5,) * 256, "limit of 255"), ((5, 99_999), "vocabulary of")],
)
def test_a_malformed_prompt_is_refused_with_the_limit(generator, prompt, limit):
    with pytest.raises(ValueError, match=limit):
        generator.generate([Request(prompt)])
    # and the generator still works
    assert generator.generate([Request((5, 6), SamplingParams(max_tokens=2))])[0].output_ids


def test_calls_that_arrive_later_join(generator, reference):
    async def run() -> list[Completion]:
        first = [
            asyncio.create_task(generator.submit(p, {"max_tokens": 60, "seed": i}))
            for i, p in enumerate(prompts(6))
        ]
        await asyncio.sleep(0.02)
        late = [
            asyncio.create_task(generator.submit(p, {"max_tokens": 8, "seed": 100 + i}))
            for i, p in enumerate(prompts(6, seed=1))
        ]
        return await asyncio.gather(*first, *late)

    for prompt, done in zip([*prompts(6), *prompts(6, seed=1)], asyncio.run(run()), strict=True):
        expected = trainer_log_probs(reference, prompt, done.output_ids, 1.0)
        assert torch.allclose(torch.tensor(done.log_probs), expected, atol=5e-6, rtol=0)


def test_more_requests_than_fit_are_all_served(reference, tokenizer):
    made = BatchGenerator(
        copy.deepcopy(reference), [tokenizer.eos_token_id], max_rows=4, kv_bytes=200_000
    )
    requests = [Request(p, SamplingParams(max_tokens=7, seed=i)) for i, p in enumerate(prompts(19))]
    for request, done in zip(requests, made.generate(requests), strict=True):
        expected = trainer_log_probs(reference, request.prompt_ids, done.output_ids, 1.0)
        assert torch.allclose(torch.tensor(done.log_probs), expected, atol=5e-6, rtol=0)
    made.close()


def test_a_failing_batch_fails_its_requests_and_only_them(generator):
    healthy = generator.model.lm_head.weight.detach().clone()
    generator.exclusively(lambda: generator.model.lm_head.weight.data.fill_(float("nan")))
    with pytest.raises(FloatingPointError, match="not finite"):
        generator.generate([Request((5, 6, 7))])
    generator.exclusively(lambda: generator.model.lm_head.weight.data.copy_(healthy))
    assert generator.generate([Request((5, 6, 7), SamplingParams(max_tokens=2))])[0].output_ids


def test_exclusive_work_runs_between_batches_and_its_error_reaches_the_caller(generator):
    async def run() -> int:
        task = asyncio.create_task(generator.submit((5, 6, 7), {"max_tokens": 40}))
        await asyncio.sleep(0)
        await asyncio.to_thread(generator.exclusively, lambda: None)
        return len((await task).output_ids)

    assert asyncio.run(run()) == 40
    with pytest.raises(ZeroDivisionError):
        generator.exclusively(lambda: 1 / 0)


def test_a_closed_generator_refuses(reference, tokenizer):
    made = BatchGenerator(copy.deepcopy(reference), [tokenizer.eos_token_id])
    made.close()
    with pytest.raises(RuntimeError, match="closed"):
        made.generate([Request((5, 6))])


def test_unknown_sampling_parameters_are_refused():
    with pytest.raises(ValueError, match="min_p"):
        SamplingParams.from_mapping({"min_p": 0.1})
    with pytest.raises(ValueError, match="repetition_penalty"):
        SamplingParams.from_mapping({"repetition_penalty": 1.1})
    assert SamplingParams.from_mapping(
        {"temperature": 1.0, "logprobs": True, "repetition_penalty": 1.0, "max_new_tokens": 4}
    ) == SamplingParams(max_tokens=4)


def test_sampling_follows_the_distribution_within_top_k_and_top_p():
    count = 40_000
    logits = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05]).log().repeat(count, 1)
    draws = torch.from_numpy(uniforms(np.arange(count, dtype=np.uint64), np.zeros(count, int)))
    ones, off = torch.ones(count), torch.full((count,), -1)

    def shares(top_p: float, top_k: int) -> torch.Tensor:
        tokens, log_probs = sample(
            logits, ones, torch.full((count,), top_p), torch.full_like(off, top_k), draws
        )
        # Log-probs stay those of the full distribution, as the trainer computes them.
        assert torch.allclose(log_probs, logits[0][tokens], atol=1e-6)
        return torch.bincount(tokens, minlength=5) / count

    expected = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05])
    assert torch.allclose(shares(1.0, -1), expected, atol=0.01)
    assert torch.allclose(shares(1.0, 2), torch.tensor([5 / 7, 2 / 7, 0, 0, 0]), atol=0.01)
    assert torch.allclose(shares(0.6, -1), torch.tensor([5 / 7, 2 / 7, 0, 0, 0]), atol=0.01)
    assert torch.allclose(shares(0.5, -1), torch.tensor([1.0, 0, 0, 0, 0]), atol=0.01)


def test_an_aborted_request_goes_on_where_it_was(generator, reference):
    """As verl's client takes it up: prompt and what there is become the next prompt."""
    requests = [Request(p, SamplingParams(max_tokens=150, ignore_eos=True)) for p in prompts(6)]
    futures = generator._enqueue([generator._row(request) for request in requests])
    while not generator._batch.size:
        time.sleep(0.001)
    time.sleep(0.01)
    generator.abort()
    assert all(future.done() for future in futures)
    parts = [future.result() for future in futures]
    assert any(part.finish_reason == "abort" and part.output_ids for part in parts)
    for request, part in zip(requests, parts, strict=True):
        rest = Request(
            (*request.prompt_ids, *part.output_ids),
            SamplingParams(max_tokens=8, ignore_eos=True),
        )
        (more,) = generator.generate([rest])
        joined = [*part.output_ids, *more.output_ids]
        expected = trainer_log_probs(reference, request.prompt_ids, joined, 1.0)
        found = torch.tensor([*part.log_probs, *more.log_probs])
        assert torch.allclose(found, expected, atol=5e-6, rtol=0)


def test_abort_leaves_an_idle_generator_working(generator):
    generator.abort()
    (done,) = generator.generate([Request((5, 6, 7), SamplingParams(max_tokens=3))])
    assert done.finish_reason in ("stop", "length")
