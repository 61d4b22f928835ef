"""The copy itself: a lane's protocol and its loop."""
