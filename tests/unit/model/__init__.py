"""The protocol of start, fencing, enrolment and commit, as a model that is searched exhaustively."""
