"""What the tests share: the MPIs under build/, jobs that leave nothing behind, hosts made of namespaces."""
