package lab

// KeeperMainWith is KeeperMain with a choice of ports of the test's own.
var KeeperMainWith = keeperMain

// FreePorts is how ports are chosen.
var FreePorts = freePorts
