"""Makes docs/forms.md: every DAG that people start, and every field of its form, from the DAGs themselves.

A test makes it anew and compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).parents[1]
PAGE: Final = PROJECT / "docs" / "forms.md"
_HEAD: Final = """# Forms

<!-- Made by scripts/make_forms.py from dags: change it there. -->
Every DAG that people start, and what its form asks. What it does, where it fails: [airflow.md](airflow.md).
The name of a field is what it is called over REST, in `conf`; a run whose `conf` has another name is refused
by its first task (`NOT_A_FIELD`), and so is one without `flow`, or `connect`, where there are several
(`NOT_NAMED`). Every form opens valid: who changes nothing and starts it gets the defaults, for the first
flow. The DAGs that a flow file's `schedules` bring along (`replicate_<flow>` and so on) have the same fields.
"""


def page(dags: Mapping[str, Any]) -> str:
    """Return the whole page.

    Args:
        dags: by id, as Airflow has loaded them; those on a schedule are left out.
    """
    by_hand = {name: dag for name, dag in sorted(dags.items()) if dag.schedule is None}
    lines = [line for name, dag in by_hand.items() for line in _form(name, dag)]
    return "\n".join([_HEAD, *lines])


def _form(name: str, dag: Any) -> Iterator[str]:
    yield f"## {name}"
    yield "| field | name | default | meaning |"
    yield "|---|---|---|---|"
    for field in dag.params:
        param = dag.params.get_param(field)
        schema = param.schema
        cells = (schema["title"], f"`{field}`", _default(field, param.value), schema["description_md"])
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _default(field: str, value: object) -> str:
    """Return what a form opens with; which files there are is another matter on each machine."""
    if field in ("flow", "connect"):
        return "the first"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value}`" if value not in (None, []) else "empty"


def main() -> None:
    """Write the page."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(PROJECT / "dags", collect_dags=True)
    PAGE.write_text(page(bag.dags))


if __name__ == "__main__":
    main()
