"""Work that several processes or machines share: what is to be done, who does it, what becomes of those that die."""
