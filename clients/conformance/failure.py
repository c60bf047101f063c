"""How a case ends that does not succeed."""


class CaseFailure(Exception):
    """The client does not do what the guide says, or the driver what the protocol says."""


class CaseSkip(Exception):
    """The case cannot be run, for this reason."""


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CaseFailure(otherwise)
