"""The SDKs are to be read: they do not grow without a reason. What makes one longer raises its limit here, and the page of languages."""

import ast
import re
from pathlib import Path

import pytest

CLIENTS = Path(__file__).resolve().parents[2]
#: Lines without tests, comments and blank ones. The aim was 1,500.
TYPESCRIPT, PYTHON = 2_800, 3_000
COMMENT = re.compile(r"\s*(//|/?\*|$)")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def typescript(source: str) -> int:
    return sum(not COMMENT.match(line) for line in source.splitlines())


def python(source: str) -> int:
    docs: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docs.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and number not in docs for number, line in lines)


def test_the_sdks_have_no_more_lines_than_they_had() -> None:
    found = {
        "typescript": sum(typescript(file.read_text()) for file in (CLIENTS / "typescript/packages/sdk/src").glob("*.ts")),
        "python": sum(python(file.read_text()) for file in (CLIENTS / "python/src/semel").rglob("*.py")),
    }
    assert 0 < found["typescript"] <= TYPESCRIPT and 0 < found["python"] <= PYTHON, found
    page = (CLIENTS.parent / "docs/languages.md").read_text()
    assert f"TypeScript has about {TYPESCRIPT:,} lines" in page and f"Python about {PYTHON:,}" in page


@pytest.mark.parametrize(("count", "source", "lines"), [(typescript, "// a\n\n/** b\n * c\n */\nlet a;\n", 1), (python, '"""a\nb"""\n# c\nx = 1\n\n', 1)])
def test_comments_and_blank_lines_do_not_count(count: object, source: str, lines: int) -> None:
    assert callable(count) and count(source) == lines
