"""PPO for Pylos: self-play against a league of earlier selves."""
