"""``routewright prior``: what earlier studies teach, and what it is worth."""

from __future__ import annotations

import typer

from routewright.cli import prior_check, prior_evaluate, prior_learn, prior_show

app = typer.Typer(
    help="Learn from finished studies what the next one should try first; look at it, check it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("learn")(prior_learn.learn)
app.command("remove")(prior_learn.remove)
app.command("show")(prior_show.show)
app.command("check")(prior_check.check)
app.command("evaluate")(prior_evaluate.evaluate)
