"""AlphaZero for Pylos: self-play with tree search, a replay window, a learner, a gate."""
