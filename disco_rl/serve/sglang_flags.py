"""Which flags an SGLang has, read from its source: importing it would need a GPU's libraries."""

import ast
import difflib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


def installed() -> Path | None:
    """The folder of the installed SGLang, which isn't imported, or None."""
    spec = importlib.util.find_spec("sglang")
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else None


def read_flags(package: Path) -> dict[str, bool]:
    """Flags of `python -m sglang.launch_server`, and whether each takes a value.

    `package` is the folder `sglang`. Reads `add_argument` calls and, from 0.5.2x on, annotated
    fields (`name: A[type, Arg(...)]`). Raises `ValueError` where it finds neither.
    """
    server_args = package / "srt" / "server_args.py"
    sources = [server_args, *sorted((package / "srt" / "arg_groups" / "fields").glob("*.py"))]
    flags: dict[str, bool] = {}
    for path in sources:
        if path.is_file():
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                flags.update(_added(node) if isinstance(node, ast.Call) else _field(node))
    if "--model-path" not in flags:
        raise ValueError(f"no SGLang flags found in {server_args}; its layout is a new one")
    return flags


def check(arguments: Sequence[str], flags: dict[str, bool]) -> None:
    """Raises `ValueError` naming a flag that there isn't, with the nearest one that there is, or
    one that lacks its value or has one too many."""
    for i, word in enumerate(arguments):
        if not word.startswith("--"):
            continue
        if word not in flags:
            near = difflib.get_close_matches(word, list(flags), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"this SGLang has no flag {word}{hint} Correct serve.flags")
        following = arguments[i + 1] if i + 1 < len(arguments) else None
        given = following is not None and not following.startswith("--")
        if given != flags[word]:
            wants = "takes a value" if flags[word] else "takes no value"
            raise ValueError(f"SGLang's flag {word} {wants}. Correct serve.flags")


def _added(call: ast.Call) -> Iterator[tuple[str, bool]]:
    """Flags of `parser.add_argument("--a", "--b", action=...)`."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
        return
    action = next((ast.unparse(k.value) for k in call.keywords if k.arg == "action"), "")
    bare = "store_true" in action or "StoreTrue" in action or "store_false" in action
    for argument in call.args:
        if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
            yield str(argument.value), not bare


def _field(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Flags of a field `name: A[type, "help" or Arg(...)]`."""
    if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
        return
    kind = node.annotation
    if not (isinstance(kind, ast.Subscript) and ast.unparse(kind.value) in ("A", "Annotated")):
        return
    if not (isinstance(kind.slice, ast.Tuple) and len(kind.slice.elts) > 1):
        return
    options: dict[str | None, ast.expr] = {}
    for extra in kind.slice.elts[1:]:
        if isinstance(extra, ast.Call) and ast.unparse(extra.func) == "Arg":
            options = {k.arg: k.value for k in extra.keywords}
    if "no_cli" in options and ast.unparse(options["no_cli"]) == "True":
        return
    takes = ast.unparse(kind.slice.elts[0]) != "bool" and "action" not in options
    name = "--" + node.target.id.replace("_", "-")
    if isinstance(given := options.get("cli_name"), ast.Constant):
        name = str(given.value)
    yield name, takes
    aliases = options.get("aliases")
    for alias in aliases.elts if isinstance(aliases, ast.List) else []:
        if isinstance(alias, ast.Constant):
            yield str(alias.value), takes


if __name__ == "__main__":  # python -m disco_rl.serve.sglang_flags SITE_PACKAGES/sglang
    for flag, takes in sorted(read_flags(Path(sys.argv[1])).items()):
        print(flag, "VALUE" if takes else "")
