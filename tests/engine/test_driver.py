"""The Driver's prompts fit the window: evidence is cut by rank and counted, limits are named."""

import asyncio

import pytest

from disco_rl.core.evidence import EvidencePool, Finding, NarrowOutput, WideOutput
from disco_rl.core.plan_parser import PLAN_SCHEMA
from disco_rl.core.replies import REVIEW_SCHEMA
from disco_rl.core.trajectory import Review, Stage, StopReason
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.driver import Driver, EpisodeStop
from disco_rl.engine.episode import run_episode
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import Quote, Scan
from disco_rl.prompts import PromptSet, load_prompts
from tests.engine.scripted import ACCEPT, CONTEXT, PLAN, config, narrow, plan, run, user, wide
from tests.fakes import ScriptedModel


class Recording(ScriptedModel):
    """Keeps the limits and schemas that it was called with."""

    def __init__(self, replies):
        super().__init__(replies)
        self.asked: list[tuple[int, object]] = []

    async def generate(self, messages, *, max_tokens, schema=None):
        self.asked.append((max_tokens, schema))
        return await super().generate(messages, max_tokens=max_tokens, schema=schema)


def outputs(n: int) -> list[NarrowOutput]:
    findings = [Finding("n1", i, f"fact {i} of ten words or so it is", None) for i in range(n)]
    return [NarrowOutput("n1", tuple(findings), (), n)]


def test_evidence_over_the_budget_is_cut_from_the_end_and_counted():
    limits = config(window=500, max_call_tokens=300)
    model = Recording(["answer"])
    driver = Driver(model, limits, [])
    output = asyncio.run(driver.synthesize("Say it.", outputs(100), (), 0, "w1"))
    prompt = user(model.prompts[0])
    kept = prompt.count("n1 [")
    assert output == WideOutput("w1", "answer", 100 - kept)
    assert 0 < kept < 100
    assert "n1 [0]: fact 0 of" in prompt and f"n1 [{kept}]" not in prompt
    assert model.count(model.prompts[0]) <= limits.prompt_budget
    assert limits.prompt_budget - model.count(model.prompts[0]) < 12  # one more would not fit
    assert model.asked == [(300, None)]


def test_earlier_stages_are_cut_before_this_ones_evidence():
    pool = EvidencePool({"n1": outputs(30)[0]})
    earlier = [Stage(0, pool=pool, answer="a", review=Review(False, "the gap"))]
    model = Recording(["answer"])
    driver = Driver(model, config(window=500, max_call_tokens=300), [])
    output = asyncio.run(driver.synthesize("Say it.", outputs(5), earlier, 1, "w1"))
    prompt = user(model.prompts[0])
    assert output.n_cut > 0
    assert all(f"\nn1 [{i}]" in prompt for i in range(5))
    assert "stage 1 gap: the gap" in prompt and "stage 1 answer: a" in prompt
    assert prompt.count("stage 1 n1 [") == 30 - output.n_cut


def test_history_cut_from_a_plan_prompt_is_counted_on_its_stage():
    earlier = [Stage(0, pool=EvidencePool({"n1": outputs(200)[0]}), answer="a")]
    stage = Stage(1)
    model = Recording([PLAN])
    limits = config(window=900, max_call_tokens=300)
    asyncio.run(Driver(model, limits, []).plan("Q?", 4, earlier, stage))
    assert stage.n_history_cut == 200 - user(model.prompts[0]).count("stage 1 n1 [") > 0
    assert model.asked == [(300, PLAN_SCHEMA)]


def test_an_episode_counts_its_cuts():
    class Talkative:
        async def scan(self, instruction, context, shard):
            return Scan(tuple(Quote("word " * 20, None) for _ in range(10)))

    text = plan(narrow("n1"), wide("w1", "n1"))
    model = ScriptedModel([text, "1815", ACCEPT])
    limits = config(window=1100, max_call_tokens=600)
    pool = WorkerPool(Talkative(), max_findings=25)
    trajectory = run(run_episode("Q?", CONTEXT, model, pool, limits))
    assert trajectory.stop is StopReason.ACCEPTED
    found, answer = trajectory.stages[0].pool.outputs.values()
    assert (len(found.findings), found.n_cut) == (25, 15)
    assert answer.n_cut == 25 - user(model.prompts[1]).count("n1 [") > 0


def test_a_question_that_eats_into_the_reply_leaves_it_the_rest_of_the_window():
    limits = config(window=500, max_call_tokens=450)
    model = Recording([PLAN])
    asyncio.run(Driver(model, limits, []).plan("word " * 100, 4, [], Stage(0)))
    (max_tokens, _), size = model.asked[0], model.count(model.prompts[0])
    assert size > limits.prompt_budget
    assert max_tokens == 500 - size - 1


def test_a_question_too_long_for_the_window_stops_the_episode_and_says_so():
    model = ScriptedModel([])
    trajectory = run(
        run_episode("word " * 3000, CONTEXT, model, WorkerPool(None), config())  # type: ignore[arg-type]
    )
    assert trajectory.stop is StopReason.WINDOW
    assert trajectory.error == "the plan prompt doesn't fit driver.window=2000"
    assert (trajectory.calls, trajectory.answer) == ([], None)


def test_a_repair_that_does_not_fit_is_the_replys_fault_not_the_windows():
    bad = "no " * 250
    model = Recording([bad])
    calls = []
    driver = Driver(model, config(window=600, max_call_tokens=300), calls)
    with pytest.raises(EpisodeStop, match="plan: there is no JSON object") as caught:
        asyncio.run(driver.plan("word " * 60, 4, [], Stage(0)))
    assert caught.value.reason is StopReason.INVALID_CALL
    assert [call.error for call in calls] == ["no_json"]


def test_the_reviews_evidence_leaves_the_answer_itself_out():
    stage = Stage(0, answer="1815")
    stage.pool.outputs |= {"n1": outputs(1)[0], "w0": WideOutput("w0", "mid")}
    stage.pool.outputs |= {"w1": WideOutput("w1", "1815")}
    model = Recording([ACCEPT])
    assert asyncio.run(Driver(model, config(), []).review("Q?", [], stage)) == Review(True)
    prompt = user(model.prompts[0])
    assert "w0: mid" in prompt and "w1" not in prompt and "Proposed answer: 1815" in prompt
    assert model.asked == [(200, REVIEW_SCHEMA)]
    assert stage.n_review_cut == 0


def test_evidence_cut_from_a_review_is_counted_on_its_stage():
    stage = Stage(0, answer="1815")
    stage.pool.outputs |= {"n1": outputs(100)[0], "w1": WideOutput("w1", "1815")}
    model = Recording([ACCEPT])
    limits = config(window=500, max_call_tokens=300)
    asyncio.run(Driver(model, limits, []).review("Q?", [], stage))
    assert stage.n_review_cut == 100 - user(model.prompts[0]).count("n1 [") > 0


def test_messages_are_short_however_long_the_error():
    bad = '{"nodes": [{"op": "' + "x" * 100_000 + '"}]}'
    calls = []
    with pytest.raises(EpisodeStop) as caught:
        asyncio.run(Driver(Recording([bad, bad]), config(), calls).plan("Q?", 4, [], Stage(0)))
    assert len(str(caught.value)) < 500
    assert all(len(call.message) <= 400 for call in calls)


def test_a_set_without_a_system_text_sends_no_system_message():
    brief = EpisodeConfig(load_prompts("brief"), window=2000, max_call_tokens=200)
    for limits, roles in ((brief, ["user"]), (config(), ["system", "user"])):
        model = Recording([PLAN])
        asyncio.run(Driver(model, limits, []).plan("Q?", 4, [], Stage(0)))
        assert [message["role"] for message in model.prompts[0]] == roles


PROMPTS = PromptSet("none", {})


@pytest.mark.parametrize(
    "field",
    [
        "window",
        "max_call_tokens",
        "max_stages",
        "max_plan_nodes",
        "max_instruction_words",
        "deadline_s",
    ],
)
@pytest.mark.parametrize("value", [0, -1])
def test_limits_must_be_positive(field, value):
    with pytest.raises(ValueError, match=f"{field} must be positive, not {value}"):
        EpisodeConfig(PROMPTS, **{field: value})


@pytest.mark.parametrize("tokens", [99, 100, 101])
def test_a_call_limit_that_leaves_no_room_for_a_prompt_is_refused(tokens):
    with pytest.raises(ValueError, match=f"max_call_tokens {tokens} leaves no room.*window 100"):
        EpisodeConfig(PROMPTS, window=100, max_call_tokens=tokens)
    assert EpisodeConfig(PROMPTS, window=100, max_call_tokens=98).prompt_budget == 1


def test_repairs_may_be_zero_but_not_less():
    assert EpisodeConfig(PROMPTS, repairs=0).repairs == 0
    with pytest.raises(ValueError, match="repairs must be 0 or more"):
        EpisodeConfig(PROMPTS, repairs=-1)


def test_the_defaults_are_the_papers():
    limits = EpisodeConfig(PROMPTS)
    assert (limits.window, limits.max_call_tokens, limits.max_stages) == (24_576, 16_384, 10)


@pytest.mark.parametrize(
    ("limit", "kind"),
    [({"max_plan_nodes": 1}, "too_many_nodes"), ({"max_instruction_words": 1}, "not_atomic")],
)
def test_the_configs_plan_limits_are_the_parsers(limit, kind):
    calls = []
    with pytest.raises(EpisodeStop):
        asyncio.run(
            Driver(Recording([PLAN]), config(repairs=0, **limit), calls).plan("Q?", 4, [], Stage(0))
        )
    assert [call.error for call in calls] == [kind]
