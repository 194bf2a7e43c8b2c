"""Recording a table: a space of routes, measured once on a real model, to be replayed.

:mod:`.journal` keeps every measurement the moment it is made, :mod:`.crossing` chooses which live
knobs are crossed, :mod:`.recorder` carries the work out.
"""
