"""InfiniteBench (Zhang et al. 2024): En.QA and En.MC, questions about whole novels.

Rows: `id`, `context`, `input`, `answer` (a list), `options` (of En.MC).
"""

from collections.abc import Iterator

from disco_rl.evaluation.benchmarks.item import SHORT_STYLE, Item, field, held, rows
from disco_rl.evaluation.methods.protocol import Task
from disco_rl.evaluation.scores import Gold

_CHOICE_STYLE = "Answer with the letter of the right option only."


def infinitebench(task: str, source: str, split: str | None = None) -> Iterator[Item]:
    """`task` is `qa` (longbook_qa_eng) or `mc` (longbook_choice_eng)."""
    if task not in ("qa", "mc"):
        raise ValueError(f"benchmark.task is {task!r}; choose qa or mc")
    for row in rows(source, split=split):
        answers = field(row, "answer", source)
        answers = tuple(map(str, answers if isinstance(answers, list) else [answers]))
        options = tuple(map(str, field(row, "options", source))) if task == "mc" else ()
        id = f"{task}-{field(row, 'id', source)}"
        if task == "mc":
            gold = Gold((_letter(answers, options, f"{source}, id {row['id']}"),), options)
        else:
            gold = Gold(answers)
        style = _CHOICE_STYLE if task == "mc" else SHORT_STYLE
        yield Item(
            id,
            f"En.{task.upper()}",
            f"infinitebench_{task}",
            Task(field(row, "input", source).strip(), options, style, max_tokens=40),
            gold,
            held(id, field(row, "context", source)),
        )


def _letter(answers: tuple[str, ...], options: tuple[str, ...], where: str) -> str:
    """The published rows give the option's text; the authors' own predictions text and letter."""
    for answer in answers:
        if answer in options:
            return "ABCD"[options.index(answer)]
    if answers[-1] in "ABCD"[: len(options)]:
        return answers[-1]
    raise ValueError(f"{where}: the answer {answers} is none of the options {options}")
