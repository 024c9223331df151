// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * /dev/deadbeat: files, their configuration, and the module's start and end. deadbeat.h
 * describes each call.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/compat.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "internal.h"

/* An open file keeps the module loaded, so an unload first asks the files to close. */
static bool drain;
static DECLARE_WAIT_QUEUE_HEAD(drain_wait);

static int drain_set(const char *value, const struct kernel_param *parameter)
{
	int error = param_set_bool(value, parameter);

	if (!error)
		wake_up_interruptible_poll(&drain_wait, EPOLLHUP);
	return error;
}

static const struct kernel_param_ops drain_ops = {
	.set = drain_set,
	.get = param_get_bool,
};

module_param_cb(drain, &drain_ops, &drain, 0644);
MODULE_PARM_DESC(drain, "asks programs to close the device, and refuses to open it: before rmmod");

static int deadbeat_open(struct inode *inode, struct file *file)
{
	struct session *session;

	if (READ_ONCE(drain))
		return -ENODEV;
	session = kzalloc(sizeof(*session), GFP_KERNEL_ACCOUNT);
	if (!session)
		return -ENOMEM;
	/* The file's opener, also after the descriptor is passed on. */
	session->owner = owner_get(file->f_cred->euid);
	if (!session->owner) {
		kfree(session);
		return -ENOMEM;
	}
	refcount_set(&session->users, 1);
	mutex_init(&session->lock);
	xa_init_flags(&session->registrations, XA_FLAGS_ALLOC1);
	file->private_data = session;
	stats_add(COUNT_SESSIONS, 1);
	return 0;
}

void session_put(struct session *session)
{
	if (!refcount_dec_and_test(&session->users))
		return;
	if (session->udp)
		udp_close(session->udp);
	if (session->verbs)
		verbs_close(session->verbs);
	xa_destroy(&session->registrations);
	mutex_destroy(&session->lock);
	owner_put(session->owner);
	kfree(session);
	stats_add(COUNT_SESSIONS, -1);
}

static int deadbeat_release(struct inode *inode, struct file *file)
{
	struct session *session = file->private_data;

	registrations_remove(session);
	session_put(session);
	return 0;
}

static int configure(struct session *session, const struct deadbeat_configuration *wanted)
{
	if (!wanted->destinations || wanted->destinations & ~(DEADBEAT_UDP | DEADBEAT_VERBS))
		return -EINVAL;
	if (session->configured)
		return -EISCONN;
	if (wanted->destinations & DEADBEAT_UDP) {
		struct udp_group *udp = udp_open(&wanted->udp);

		if (IS_ERR(udp))
			return PTR_ERR(udp);
		session->udp = udp;
	}
	if (wanted->destinations & DEADBEAT_VERBS) {
		struct verbs_group *verbs = verbs_open(&wanted->verbs);

		if (IS_ERR(verbs)) {
			if (session->udp)
				udp_close(session->udp);
			session->udp = NULL;
			return PTR_ERR(verbs);
		}
		session->verbs = verbs;
	}
	session->configured = true;
	return 0;
}

static long ioctl_configure(struct session *session, const void __user *from)
{
	struct deadbeat_configuration wanted;
	int error;

	if (copy_from_user(&wanted, from, sizeof(wanted)))
		return -EFAULT;
	mutex_lock(&session->lock);
	error = configure(session, &wanted);
	mutex_unlock(&session->lock);
	return error;
}

static long ioctl_register(struct session *session, struct deadbeat_registration __user *user)
{
	struct deadbeat_registration *wanted;
	int error;

	wanted = memdup_user(user, sizeof(*wanted));
	if (IS_ERR(wanted))
		return PTR_ERR(wanted);
	mutex_lock(&session->lock);
	error = session->configured ? registration_add(session, wanted) : -ENOTCONN;
	if (!error && put_user(wanted->id, &user->id)) {
		registration_remove(session, wanted->id);
		error = -EFAULT;
	}
	mutex_unlock(&session->lock);
	kfree(wanted);
	return error;
}

static long ioctl_unregister(struct session *session, const u32 __user *user)
{
	int error;
	u32 id;

	if (get_user(id, user))
		return -EFAULT;
	mutex_lock(&session->lock);
	error = registration_remove(session, id);
	mutex_unlock(&session->lock);
	return error;
}

static long deadbeat_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct session *session = file->private_data;
	void __user *user = (void __user *)argument;

	switch (command) {
	case DEADBEAT_GET_ABI:
		return put_user((u32)DEADBEAT_ABI, (u32 __user *)user);
	case DEADBEAT_CONFIGURE:
		return ioctl_configure(session, user);
	case DEADBEAT_REGISTER:
		return ioctl_register(session, user);
	case DEADBEAT_UNREGISTER:
		return ioctl_unregister(session, user);
	default:
		return -ENOTTY;
	}
}

static __poll_t deadbeat_poll(struct file *file, poll_table *wait)
{
	poll_wait(file, &drain_wait, wait);
	return READ_ONCE(drain) ? EPOLLHUP : 0;
}

static const struct file_operations deadbeat_operations = {
	.owner = THIS_MODULE,
	.open = deadbeat_open,
	.poll = deadbeat_poll,
	.release = deadbeat_release,
	.unlocked_ioctl = deadbeat_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice deadbeat_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "deadbeat",
	.fops = &deadbeat_operations,
	.mode = 0600,
};

static int __init deadbeat_init(void)
{
	int error;

	error = registrations_init();
	if (error)
		return error;
	error = verbs_init();
	if (error)
		goto no_verbs;
	error = hooks_init();
	if (error)
		goto no_hooks;
	stats_init();
	error = misc_register(&deadbeat_device);
	if (error)
		goto no_device;
	return 0;

no_device:
	stats_exit();
	hooks_exit();
no_hooks:
	verbs_exit();
no_verbs:
	registrations_exit();
	return error;
}

static void __exit deadbeat_exit(void)
{
	/* No file is open any more, or the module could not go. */
	misc_deregister(&deadbeat_device);
	stats_exit();
	hooks_exit();
	/* Frees what closed files have left, so their groups, too. */
	registrations_exit();
	verbs_exit();
}

module_init(deadbeat_init);
module_exit(deadbeat_exit);

MODULE_DESCRIPTION("Reports the deaths of processes to the network");
MODULE_LICENSE("GPL");
