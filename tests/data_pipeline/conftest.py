"""A small encyclopedia with questions, and the data set of one unbroken run over them."""

from pathlib import Path

import pytest

from data_pipeline.steps.run import run
from tests.data_pipeline import small_wiki
from tests.data_pipeline.pipeline import overrides, quiet, typed


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    made = small_wiki.pages(200, 11)
    small_wiki.write_pages(folder / "pages.jsonl", made)
    names = [page.title for page in made]
    small_wiki.write_records(folder / "musique.jsonl", small_wiki.records(12, names, 4))
    with (folder / "musique.jsonl").open("a") as file:
        file.write('{"id": "broken"}\n{not json\n')
    return folder


@pytest.fixture(scope="session")
def built(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "out"
    run(typed(overrides(inputs, out)), "dataset", quiet)
    return out
