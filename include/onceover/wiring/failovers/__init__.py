"""Drills, switchovers and the way back, between clusters that are opened here."""
