"""Errors that a user can cause, and nothing else.

Everything that derives from :class:`RoutewrightError` is shown as one line without a traceback.
A defect of ours is never wrapped in one of these, so it keeps its traceback.
"""


class RoutewrightError(Exception):
    """Something the user can mend.

    The message is one line: what is wrong, why, and the way out.
    """

    exit_code = 2


class KnobError(RoutewrightError):
    """A knob database cannot be read, or a knob is not in it."""


class RouteError(RoutewrightError):
    """A route or route expression is malformed, or names a knob or value that does not exist."""


class ModelError(RoutewrightError):
    """A model file cannot be read, or the given shapes do not fit it."""


class SampleError(RoutewrightError):
    """Sample inputs or reference outputs do not fit the model."""


class SettingsError(RoutewrightError):
    """An option or a study file is invalid, or contradicts the study it resumes."""


class BackendError(RoutewrightError):
    """A backend is not installed, not usable on this machine, or refuses this model."""


class StorageError(RoutewrightError):
    """A study storage or an output folder cannot be used."""


class BudgetError(RoutewrightError):
    """The budget is too short for the least that a study needs."""


class NoEligibleEngineError(RoutewrightError):
    """Not even the default route meets the accuracy bound."""

    exit_code = 3
