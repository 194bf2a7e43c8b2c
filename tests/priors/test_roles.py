from __future__ import annotations

from routewright.priors.roles import Role, roles_of


def test_numbered_knobs_share_a_role_and_differ_in_position() -> None:
    roles = roles_of(["-part:conv1", "-part:conv2", "-part:conv3", "-part:conv4", "-mode"])
    assert {role.name for role in roles.values()} == {"-part:conv#", "-mode"}
    assert [roles[f"-part:conv{n}"].position for n in (1, 2, 3, 4)] == [0.125, 0.375, 0.625, 0.875]
    assert roles["-mode"] == Role("-mode", 0.5)


def test_position_is_relative_to_how_many_there_are() -> None:
    assert roles_of(["-part1"])["-part1"].position == 0.5
    many = roles_of([f"-part{n}" for n in range(1, 11)])
    assert many["-part10"].position == 0.95
    assert many["-part2"].position < many["-part10"].position
