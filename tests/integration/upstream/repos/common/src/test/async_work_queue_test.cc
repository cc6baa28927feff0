int TestOfTheQueue() { return 0; }
