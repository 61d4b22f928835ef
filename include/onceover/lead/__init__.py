"""The leader: generations, enrolment, and a running flow as its driver sees it."""
