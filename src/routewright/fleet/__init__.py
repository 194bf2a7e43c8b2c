"""Several workers on one study, on one machine or many, through an Optuna storage alone.

There is no server of ours and no protocol beside Optuna's: workers see each other's trials in the
storage. What Optuna leaves open is added here, thinly. A *lease* tells who is alive
(:mod:`~routewright.fleet.lease`), the *reaper* takes trials from the dead
(:mod:`~routewright.fleet.reaper`), the *spool* keeps what was measured while the storage is away
(:mod:`~routewright.fleet.spool`), the *election* lets one worker confirm the winner
(:mod:`~routewright.fleet.election`), and :mod:`~routewright.fleet.joining` finds the study of the
group that belongs to this machine's environment.
"""
