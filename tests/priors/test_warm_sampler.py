from __future__ import annotations

from prior_studies import BASELINE, database, features, random_study, source, timed
from routewright.priors.learning import form_beliefs
from routewright.priors.target import Target
from routewright.priors.warm_sampler import WarmSampler
from routewright.priors.warmstart import WarmStart
from routewright.search.base import History
from routewright.search.registry import make_sampler
from routewright.space import SearchSpace


def warm_sampler() -> tuple[WarmSampler, WarmStart]:
    known = database("-a", "-b", "-c")
    effects = {"-a=on": -0.2, "-b=on": 0.1, "-c=on": -0.1}
    sources = [
        source(f"s{seed}", random_study(effects, seed=seed), features=features())
        for seed in range(2)
    ]
    space = SearchSpace.whole(known)
    warm = WarmStart.of(form_beliefs(sources, Target("synthetic", known, features())), space)
    return WarmSampler(warm, make_sampler("fast", space, seed=0)), warm


def test_the_priors_routes_come_before_the_methods_own() -> None:
    sampler, warm = warm_sampler()
    records = [BASELINE]
    for number, expected in enumerate(warm.suggestions, 1):
        proposal = sampler.propose(History(records=records))
        assert proposal is not None
        assert proposal.route == expected.route
        assert proposal.origin.startswith("prior: ")
        # A little less than expected, so that the routes after it are not surpassed.
        gain = 0.9 * warm.suggestions[-1].mean
        records.append(timed(number, str(expected.route), gain))
    own = sampler.propose(History(records=records))
    assert own is not None
    assert not own.origin.startswith("prior")


def test_the_method_takes_over_once_the_prior_proves_wrong() -> None:
    sampler, warm = warm_sampler()
    slow = timed(1, str(warm.suggestions[0].route), 0.3)
    proposal = sampler.propose(History(records=[BASELINE, slow]))
    assert proposal is not None
    assert not proposal.origin.startswith("prior")
