"""Write the table of rules into the documentation: `python scripts/rules.py`."""

from __future__ import annotations

from pathlib import Path

from autograd_opt.passes.rules import BITS, REALS, RULES

PAGE = Path(__file__).parents[1] / "docs" / "passes.md"
BEGIN, END = "<!-- rules: {} -->", "<!-- end -->"


def table(strength: str) -> str:
    """The rules of one strength, a line each."""
    lines = ["| rule | pattern | becomes | where |", "|---|---|---|---|"]
    for rule in RULES:
        if rule.strength == strength:
            where = f"`{rule.when}`" if rule.when else ""
            lines.append(f"| {rule.name} | `{rule.pattern}` | `{rule.replacement}` | {where} |")
    return "\n".join(lines)


def written(text: str) -> str:
    """The page with its tables as the data has them."""
    for strength in (BITS, REALS):
        begin = BEGIN.format(strength)
        before, _, rest = text.partition(begin + "\n")
        text = f"{before}{begin}\n{table(strength)}\n{END}{rest.partition(END)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
