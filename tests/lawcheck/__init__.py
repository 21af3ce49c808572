"""Laws against what others published, and against tables whose truth is known: `launch/laws.sh`."""
