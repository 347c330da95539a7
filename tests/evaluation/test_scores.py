"""Official scorers on published predictions and worked cases, strict ones on what games them.

The InfiniteBench cases are GPT-4 predictions that its authors published (results/gpt4 of
OpenBMB/InfiniteBench), their scores what its script gives by hand computation.
"""

import pytest

from disco_rl.evaluation.scores import Gold, score
from disco_rl.evaluation.scores.choice import (
    infinitebench_choice,
    longbench_choice,
    strict_choice,
)
from disco_rl.evaluation.scores.text import contains, token_f1

# (id in the published file, prediction, gold text, gold letter, score)
PUBLISHED_CHOICES = [
    (0, "A. Walking Georgie", "Walking Georgie", "A", 1),
    (1, "B. Hall Farm", "Snowfield", "C", 0),
    (2, "C", "At the Mauras", "D", 0),
    (3, "A.", "Methodist", "A", 1),
    (14, "B. The death of Clarisse's horse", "The death of Clarisse's horse", "B", 1),
    (87, "D. A dagger", "A side Morgana bacon", "A", 0),
    (123, 'C. "A mere boy"', '"A mere boy"', "C", 1),
]
# The same questions as another model answered them (results/yarn-mistral), past the first letter.
PUBLISHED_RAMBLINGS = [
    (1, ":\n\nDear reader,\n\nThe answer to your question is C. Snowfield.\n\nI hope",
     "Snowfield", "C", 1),
    (2, ":\n\nDear Reader,\n\nThe answer to your question is C.\n\nAlain", "At the Mauras", "D", 0),
    (3, ": A. Methodist\n\n\n", "Methodist", "A", 1),
    (12, "available below.\n\nQuestion: What cause sweeps Russia in the final section of the "
         "novel?\n\nAnswer: The Serbian war\n\nExplanation: The Serbian war is",
     "The Serbian war", "B", 0),
    (21, ":\n\nC. French\n\nThe answer is: C. French\n\nThe question is: What", "French", "C", 1),
    (44, ":\n\n\n\n\n", "A and B", "D", 0),
    (48, ":\n\nDear friend,\n\nThe correct answer is D. Clementine is Miss Leo's mother-in-law.",
     "Clementine is Miss Leo's niece.", "B", 0),
    (62, ":\n\nD. To impress his neighbors.\n\nThe letter of the correct answer is:\n\nD. To "
         "impress his neighbors.", "To impress Abram.", "A", 0),
    (72, ": D", "Ivory", "D", 1),
    (79, "in the mail.\n\n\n", "Sir Blossom Horatio", "A", 0),
]  # fmt: skip
# (id, prediction, gold, F1)
PUBLISHED_ANSWERS = [
    (2, "On an island.", "the hebrides", 0),
    (
        5,
        "First-person perspective.",
        "the first-person point of view",
        1 / 3,
    ),
    (18, "Jean Louise", "Jean Louise Chase", 0.8),
    (30, "Silver.", "silver", 1),
    (34, "The Mayas use the Fiedlers' basement as a bomb shelter.", "The Fiedlers'", 2 / 8),
    (53, "The Key to all Mythologies", "key to all mythologies", 1),
    (72, "Gerold Hightower", "Ser Gerold Hightower", 0.8),
    (82, "West Egg, Long Island.", "West Egg", 2 / 3),
    (84, "The Great Gatsby is set in 1922.", "1922", 2 / 7),
]


@pytest.mark.parametrize("case", PUBLISHED_CHOICES, ids=lambda case: str(case[0]))
def test_infinitebench_choices_score_as_published_predictions_do(case) -> None:
    _, prediction, text, letter, expected = case
    assert infinitebench_choice(prediction, letter, text) == expected


@pytest.mark.parametrize("case", PUBLISHED_RAMBLINGS, ids=lambda case: str(case[0]))
def test_infinitebench_looks_for_a_letter_in_a_longer_reply(case) -> None:
    _, prediction, text, letter, expected = case
    assert infinitebench_choice(prediction, letter, text) == expected


@pytest.mark.parametrize("case", PUBLISHED_ANSWERS, ids=lambda case: str(case[0]))
def test_infinitebench_answers_score_as_published_predictions_do(case) -> None:
    _, prediction, gold, expected = case
    assert token_f1(prediction, [gold]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("So the answer is: B", 1),
        ("So the answer is B, surely", 1),
        ("The option is\nthe sea, it seems", 1),  # the gold text after a prefix
        ("It seems that the answer is", 0),  # ends with the prefix
        ("I think the answer is C, not B", 0),
        ("the sea", 1),
        ("Surely not A but B", 0),  # the first stand-alone letter decides
        ("Surely BC holds, or B", 0),  # "BC" is a piece of "ABCD", and so counts
        ("Because of the tide", 1),  # begins with B: the script's own leniency
        ("no idea", 0),
        ("   ", 0),
    ],
)
def test_infinitebench_rules_apply_in_their_order(reply: str, expected: int) -> None:
    assert infinitebench_choice(reply, "B", "the sea") == expected


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("The correct answer is (B)", "B"),
        ("**The correct answer is (D)**, since", "D"),
        ("The correct answer is C.", "C"),
        ("The correct answer is A, no: The correct answer is (B)", "B"),  # brackets come first
        ("The correct answer is (B). The correct answer is (C)", "B"),
        ("the correct answer is (B)", None),
        ("(B)", None),
        ("The correct answer is (E)", None),
        ("", None),
    ],
)
def test_longbench_finds_the_letter_as_its_script_does(reply: str, letter: str | None) -> None:
    assert longbench_choice(reply) == letter


def test_ruler_takes_any_reference_contained_in_the_reply() -> None:
    assert contains("It was in PARIS.", ["Lyon", "Paris"]) == 1
    assert contains("Lyo n", ["Lyon"]) == 0
    assert contains("\x00paris\x07", ["paris"]) == 1
    assert contains("New\tYork", ["New York"]) == 0  # a control character is a line break


def test_musique_takes_the_best_alias() -> None:
    """Its own metric: the maximum over answer and aliases, words after SQuAD normalisation."""
    gold = Gold(("United States of America", "the U.S."))
    assert score("musique", "US", gold) == {"official": 1.0, "strict": 1.0}
    assert score("musique", "United States", gold)["official"] == pytest.approx(2 / 3)
    assert score("musique", "United States", gold)["strict"] == 0


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("B", "B"),
        ("(B)", "B"),
        ("**B.** the sea", "B"),
        ("The correct answer is (B).", "B"),
        ("The correct answer is (B) the sea", "B"),
        ("The sea", "B"),
        ("answer: C", "C"),
        ("B. a mountain", None),  # letter and text contradict
        ("B or C", None),
        ("Because of the tide", None),
        ("a mountain range", None),
        ("D", None),  # there are three options
        ("a", None),
    ],
)
def test_strict_choice_wants_one_option_and_nothing_else(reply: str, letter: str | None) -> None:
    assert strict_choice(reply, ("a mountain", "the sea", "a lake")) == letter


def test_strict_scoring_is_not_gamed_by_length() -> None:
    gold = Gold(("Paris",))
    both = score("ruler_qa", "Paris, Lyon, London, Rome or Berlin", gold)
    assert both == {"official": 1.0, "strict": 0.0}
    assert score("ruler_qa", "Paris.", gold) == {"official": 1.0, "strict": 1.0}


@pytest.mark.parametrize("reply", [None, "", "  \n"])
@pytest.mark.parametrize("name", ["longbench_v2", "ruler_qa", "infinitebench_mc", "musique"])
def test_a_failed_or_empty_reply_is_wrong(name: str, reply: str | None) -> None:
    options = ("x", "y") if name in ("longbench_v2", "infinitebench_mc") else ()
    assert score(name, reply, Gold(("A",), options)) == {"official": 0.0, "strict": 0.0}


def test_bad_golds_and_names_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one gold answer"):
        Gold(())
    with pytest.raises(ValueError, match="letter of an option"):
        Gold(("C",), ("x", "y"))
    with pytest.raises(ValueError, match="choose from"):
        score("bleu", "x", Gold(("x",)))
